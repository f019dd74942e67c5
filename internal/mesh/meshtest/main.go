package meshtest

import (
	"flag"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// parallel is how many tests run side by side unless the command line says otherwise:
// they wait more than they compute.
const parallel = 6

// Main runs the tests of a package, those that are parallel SideBySide, and fails them
// if a goroutine is left.
func Main(m *testing.M) {
	SideBySide()
	goleak.VerifyTestMain(m)
}

// SideBySide is to be called before the tests of a package are run: more of those that
// are parallel run at once than there are processors.
func SideBySide() {
	flag.Parse()
	f := flag.Lookup("test.parallel")
	if f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set(strconv.Itoa(parallel)) // a number: it is accepted
	}
}
