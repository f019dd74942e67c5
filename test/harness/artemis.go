package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// OnArtemis are arguments of `waybill up` that have queues on the Artemis at a
// STOMP URL.
func OnArtemis(t testing.TB, url string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waybill.yaml")
	text := fmt.Sprintf("adapter:\n  name: artemis\n  config:\n    url: %s\n", url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", file}
}
