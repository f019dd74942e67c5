package brokers_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestFollowsEveryChange: routes change twice while nobody works on a queue. It follows
// as soon as somebody has come, and at once from a broker that drains.
func TestFollowsEveryChange(t *testing.T) {
	t.Parallel()
	rabbit, artemis := kinds[1].start(t), kinds[2].start(t)
	route := func(brokers, to string) string {
		return fmt.Sprintf("adapter: {name: builtin}\nbrokers:\n%sroutes:\n  - {pattern: /queue/led/**, broker: %s}\n", brokers, to)
	}
	both := fmt.Sprintf("  rabbit: %s\n  stomp: %s\n", rabbit, artemis)
	m := harness.Start(t, "--config", harness.Configuration(t, route(both, "rabbit")))
	c := m.Connect()
	at := func(queue, broker string) {
		t.Helper()
		if r := publish(t, c, client.Queue("led", queue), "x"); r.Broker != broker {
			t.Errorf("what is published to %s goes to %s, want %s", queue, r.Broker, broker)
		}
	}
	at("idle", "rabbit")
	at("worked", "rabbit")
	m.Apply(route(both, "stomp"))
	at("idle", "stomp")
	at("worked", "stomp")
	m.Apply(route(both, "rabbit"))
	harness.Work(t, c, "led", "worked", func(context.Context, *client.Delivery) error { return nil })
	harness.Await(t, "the queue that is worked on to follow", func() bool {
		return publish(t, c, client.Queue("led", "worked"), "x").Broker == "rabbit"
	})
	m.AwaitDead("led", "worked", 0)
	m.Apply(route(fmt.Sprintf("  rabbit: %s\n  stomp: {state: draining, %s\n", rabbit, artemis[1:]), "rabbit"))
	at("idle", "rabbit")
	harness.Work(t, c, "led", "idle", func(context.Context, *client.Delivery) error { return nil })
	m.AwaitDead("led", "idle", 0)
	harness.Await(t, "the broker that drains to be empty", func() bool { return m.Run("broker", "retire", "stomp").Code == 0 })
}

// TestLeftBehind: what a broker is retired with counts as discarded, and the books
// balance. It is delivered when the broker is there again.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	there := "adapter: {name: builtin}\nbrokers:\n  rabbit: {state: active, " + kinds[1].start(t)[1:] + "\nroutes:\n  - {pattern: /queue/left/**, broker: rabbit}\n"
	m := harness.Start(t, "--config", harness.Configuration(t, there))
	c := m.Connect()
	publish(t, c, client.Queue("left", "tasks"), "x")
	m.Apply("routes: []\n")
	if out := m.Run("broker", "drain", "rabbit"); out.Code != 0 {
		t.Fatalf("draining: %+v", out)
	}
	if out := m.Run("broker", "retire", "rabbit", "--force"); out.Code != 0 {
		t.Fatalf("retiring: %+v", out)
	}
	harness.Await(t, "it to count as discarded", func() bool { return m.Queue("left", "tasks").Counters[protocol.CountDiscarded] == 1 })
	m.Balanced()
	m.Apply(there)
	came := make(chan string, 1)
	harness.Work(t, c, "left", "tasks", func(_ context.Context, d *client.Delivery) error {
		came <- string(d.Data)
		return nil
	})
	if data := harness.Receive(t, "what was left behind", came); data != "x" {
		t.Errorf("there comes %s", data)
	}
	m.Balanced()
}
