// Package chaos_test kills and stops whole meshes under load and counts, message
// by message, that nothing was lost, doubled or misplaced.
package chaos_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/test/harness"
)

// A NATS server that is stopped while it makes a stream forgets that stream's
// store, with the goroutines it has.
func TestMain(m *testing.M) {
	harness.Main(m,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}
