package harness

import (
	"os"
	"testing"
	"time"
)

// Soak is how long tests that can go on do so: WAYBILL_SOAK, 0 in an ordinary
// run.
func Soak(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("WAYBILL_SOAK")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("WAYBILL_SOAK: %v", err)
	}
	return d
}
