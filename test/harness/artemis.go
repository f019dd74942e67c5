package harness

import (
	"fmt"
	"testing"
)

// OnArtemis are arguments of `waybill up` that have queues on the Artemis at a
// STOMP URL.
func OnArtemis(t testing.TB, url string) []string {
	t.Helper()
	return []string{"--config", Configuration(t, fmt.Sprintf("adapter:\n  name: artemis\n  config:\n    url: %s\n", url))}
}
