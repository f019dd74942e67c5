package harness

import (
	"iter"
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

// Rounds counts how often a test goes on: few times, and in a soak many times and until
// that is over.
func Rounds(t testing.TB, few, many int) iter.Seq[int] {
	t.Helper()
	soak, began := Soak(t), time.Now()
	if soak > 0 {
		few = many
	}
	return func(yield func(int) bool) {
		for n := 0; n < few || time.Since(began) < soak; n++ {
			if !yield(n) {
				return
			}
		}
	}
}
