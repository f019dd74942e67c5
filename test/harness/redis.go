package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// OnRedis are arguments of `waybill up` that have topics on the Redis at a URL; more is
// added to the configuration.
func OnRedis(t testing.TB, url, more string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waybill.yaml")
	text := fmt.Sprintf("adapter:\n  name: redis\n  config:\n    redis_url: %s\n%s", url, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", file}
}
