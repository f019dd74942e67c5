package harness

import (
	"fmt"
	"testing"
)

// OnRedis are arguments of `waybill up` that have topics on the Redis at a URL; more is
// added to the configuration.
func OnRedis(t testing.TB, url, more string) []string {
	t.Helper()
	return []string{"--config", Configuration(t, fmt.Sprintf("adapter:\n  name: redis\n  config:\n    redis_url: %s\n%s", url, more))}
}
