package harness

import (
	"fmt"
	"testing"
)

// OnRabbitMQ are arguments of `waybill up` that have queues on the RabbitMQ at an
// AMQP URL.
func OnRabbitMQ(t testing.TB, amqp string) []string {
	t.Helper()
	return []string{"--config", Configuration(t, fmt.Sprintf("adapter:\n  name: rabbitmq\n  config:\n    amqp_url: %s\n", amqp))}
}
