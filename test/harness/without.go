package harness

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BuiltWithout builds the program without an adapter, and has it start with that: it
// does not, and names what is missing.
func BuiltWithout(t *testing.T, adapter string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*Guard)
	defer cancel()
	at := filepath.Join(t.TempDir(), "waybill")
	if out, err := exec.CommandContext(ctx, "go", "build", "-tags", "no_"+adapter, "-o", at, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, at, "up", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--config", Configuration(t, "adapter: {name: "+adapter+"}\n")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "without the feature "+adapter) {
		t.Errorf("it ends with %v and says %s", err, out)
	}
}
