// Package harness runs the mesh as its users do, as a process of its own, so
// that tests can kill it, cut its connections, restart it on the same data, and
// count what is left.
package harness

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
)

// Guard is only there so that a fault ends a test instead of hanging it.
const Guard = 3 * time.Minute

// Main runs the tests of a package and fails them if a goroutine is left, other
// than the options allow. In a child process of such a test it is the worker
// that the test asked for.
func Main(m *testing.M, allowed ...goleak.Option) {
	if spec := os.Getenv(workerEnv); spec != "" {
		os.Exit(workerMain(spec))
	}
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil { // else each program waits for a second before it ends
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	meshtest.SideBySide()
	code := m.Run()
	if err := removeBuilt(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := goleak.Find(allowed...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
