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
)

const program = "github.com/waybill-mq/waybill/cmd/waybill"

// Binary is the path of the waybill program, built once for a test binary, with
// the race detector if the tests have it.
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

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "waybill-test-")
	if err != nil {
		return "", err
	}
	builtMu.Lock()
	builtDir = dir
	builtMu.Unlock()
	path := filepath.Join(dir, "waybill")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, program)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return path, nil
})

func removeBuilt() error {
	builtMu.Lock()
	defer builtMu.Unlock()
	if builtDir == "" {
		return nil
	}
	return os.RemoveAll(builtDir)
}
