package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestSameBroker: a RabbitMQ is known again by what it is. It is not named twice, its
// names stay what they are, and under another address it has what it had.
func TestSameBroker(t *testing.T) {
	t.Parallel()
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	alias := strings.Replace(address, "127.0.0.1", "localhost", 1)
	if alias == address {
		t.Fatalf("%s has no other name", address)
	}
	m := mesh(t, address)
	c := m.Connect()
	harness.Publish(t, c, client.Queue("same", "tasks"), "x")
	for what, text := range map[string]string{
		"CONFLICT: other ":    "brokers:\n  other: {name: rabbitmq, config: {amqp_url: " + alias + "}}\n",
		"CONFLICT: rabbitmq ": "adapter: {name: rabbitmq, config: {amqp_url: " + address + ", prefix: other}}\n",
	} {
		said := m.Run("config", "apply", harness.Configuration(t, text))
		if said.Code == 0 || !strings.Contains(said.Stderr, strings.Fields(what)[0]) || !strings.Contains(said.Stderr, strings.Fields(what)[1]) {
			t.Errorf("applying\n%s: %+v", text, said)
		}
	}
	m.Apply("adapter: {name: rabbitmq, config: {amqp_url: " + alias + "}}\n")
	if all := m.Brokers(); len(all) != 2 || !strings.Contains(all["rabbitmq"].Place, "localhost") || all["rabbitmq"].Ready != 1 {
		t.Errorf("the brokers are %+v", all)
	}
	got := make(chan string, 2)
	harness.Work(t, c, "same", "tasks", func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data)
		return nil
	})
	if data := harness.Receive(t, "what was there", got); data != "x" {
		t.Errorf("got %q", data)
	}
}

// TestRouteToTooLongAName: a route does not lead a subscriber to RabbitMQ whose queue
// could have no name there: its topic goes on where it is.
func TestRouteToTooLongAName(t *testing.T) {
	t.Parallel()
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	brokers := fmt.Sprintf("brokers:\n  orders: {name: rabbitmq, config: {amqp_url: %s}}\n", address)
	m := harness.Start(t, "--config", harness.Configuration(t, brokers))
	c := m.Connect()
	got := make(chan string, 2)
	topic, long := strings.Repeat("t", 40), strings.Repeat("k", 200)
	if _, err := c.Observe(t.Context(), topic, func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data)
		return nil
	}, client.ID(long)); err != nil {
		t.Fatal(err)
	}
	said := m.Run("config", "apply", harness.Configuration(t, "routes:\n  - {pattern: /topic/"+topic+", broker: orders}\n"))
	if said.Code == 0 || !strings.Contains(said.Stderr, "INVALID_NAME") || !strings.Contains(said.Stderr, long) {
		t.Errorf("the route is taken: %+v", said)
	}
	harness.Publish(t, c, client.Topic(topic), "x")
	harness.Receive(t, "the observer's copy", got)
}
