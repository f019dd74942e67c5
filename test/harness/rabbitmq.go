package harness

import (
	"fmt"
	"testing"
)

// OnRabbitMQ are arguments of `waybill up` that have queues on the RabbitMQ at an
// AMQP URL; config has lines to add to the adapter's.
func OnRabbitMQ(t testing.TB, amqp string, config ...string) []string {
	t.Helper()
	text := fmt.Sprintf("adapter:\n  name: rabbitmq\n  config:\n    amqp_url: %s\n", amqp)
	for _, line := range config {
		text += "    " + line + "\n"
	}
	return []string{"--config", Configuration(t, text)}
}
