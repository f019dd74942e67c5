package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	// What the program is made of, so that the test cache notices a change.
	_ "github.com/waybill-mq/waybill/cmd/waybill/cli"
	_ "github.com/waybill-mq/waybill/internal/daemon"
)

const (
	module  = "github.com/waybill-mq/waybill/"
	program = module + "cmd/waybill"
)

// Binary is the path of the waybill program, built once for a test binary, with
// the race detector if the tests have it (but see WithoutRace).
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	builtMu  sync.Mutex
	builtDir string
)

// ServiceBinary is the path of a service's own program, built likewise.
func ServiceBinary(t testing.TB, service string) string {
	t.Helper()
	dir, err := builtServices()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "waybill-"+service)
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := build(program)
	return filepath.Join(dir, "waybill"), err
})

var builtServices = sync.OnceValues(func() (string, error) {
	programs := make([]string, 0, len(Services))
	for _, service := range Services {
		programs = append(programs, module+"services/"+service+"/cmd/waybill-"+service)
	}
	return build(programs...)
})

// build builds programs into the directory that removeBuilt removes.
func build(programs ...string) (dir string, err error) {
	builtMu.Lock()
	defer builtMu.Unlock()
	if builtDir == "" {
		if builtDir, err = os.MkdirTemp("", "waybill-test-"); err != nil {
			return "", err
		}
	}
	args := []string{"build", "-buildvcs=false", "-o", builtDir + string(filepath.Separator)}
	if racePrograms {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, programs...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %v: %w\n%s", programs, err, out)
	}
	return builtDir, nil
}

func removeBuilt() error {
	builtMu.Lock()
	defer builtMu.Unlock()
	if builtDir == "" {
		return nil
	}
	return os.RemoveAll(builtDir)
}
