package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// Binary is the path of the waybill program, which is built if it is not up to
// date, with the race detector if the tests have it (but see WithoutRace).
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

// build builds programs and links them into the directory that removeBuilt removes.
// They are built in bin, where the tests of every package find them up to date; what
// a test runs stays as it was, though, when the next one builds them anew.
func build(programs ...string) (dir string, err error) {
	builtMu.Lock()
	defer builtMu.Unlock()
	shared, err := sharedDir()
	if err != nil {
		return "", err
	}
	lock, err := locked(filepath.Join(shared, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if builtDir == "" {
		if builtDir, err = os.MkdirTemp(shared, "run-"); err != nil {
			return "", err
		}
	}
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", shared + string(filepath.Separator)}
	if racePrograms {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, programs...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %v: %w\n%s", programs, err, out)
	}
	for _, p := range programs {
		if err := os.Link(filepath.Join(shared, filepath.Base(p)), filepath.Join(builtDir, filepath.Base(p))); err != nil {
			return "", err
		}
	}
	return builtDir, nil
}

// sharedDir is where the programs of this kind are built, for every test binary.
func sharedDir() (string, error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module of the tests: %w", err)
	}
	kind := "plain"
	if racePrograms {
		kind = "race"
	}
	dir := filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "..", "bin", "tests", kind)
	return dir, os.MkdirAll(dir, 0o755)
}

func removeBuilt() error {
	builtMu.Lock()
	defer builtMu.Unlock()
	if builtDir == "" {
		return nil
	}
	return os.RemoveAll(builtDir)
}
