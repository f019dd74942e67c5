package harness

import (
	"strings"
	"testing"
)

// OnRabbitMQ are arguments of `waybill up` that have queues on the RabbitMQ at an
// AMQP URL; config has lines to add to the adapter's.
func OnRabbitMQ(t testing.TB, amqp string, config ...string) []string {
	t.Helper()
	lines := append([]string{"amqp_url: " + amqp}, config...)
	return []string{"--config", Configuration(t, "adapter:\n  name: rabbitmq\n  config:\n    "+strings.Join(lines, "\n    ")+"\n")}
}
