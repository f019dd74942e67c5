package chaos_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// Observers of a topic have every answered message while the routers they began
// with are killed, one after the other.
func TestObserversOutliveTheirRouters(t *testing.T) {
	t.Parallel()
	const topics = 4
	m := harness.StartSeparate(t, map[string]int{"router": 2})
	c := m.Connect()
	var mu sync.Mutex
	seen := make(map[string]int)
	for i := range topics {
		topic := "t" + strconv.Itoa(i)
		if _, err := c.Observe(t.Context(), topic, func(_ context.Context, d *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[topic+"/"+string(d.Data)]++
			return nil
		}, client.ID("all-"+topic)); err != nil {
			t.Fatal(err)
		}
	}
	answered := 0
	publish := func(n int) {
		for range n {
			topic := "t" + strconv.Itoa(answered%topics)
			publishUntilStored(t, c, client.Topic(topic), []byte(strconv.Itoa(answered)), client.DedupID(strconv.Itoa(answered)))
			answered++
		}
	}
	publish(100)
	for _, name := range []string{"router-1", "router-2"} {
		m.Instance(name).Kill()
		publish(100)
		m.Instance(name).Start()
		publish(100)
		m.AwaitReady()
	}
	publish(100)
	harness.Await(t, "every message is observed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == answered
	})
	mu.Lock()
	defer mu.Unlock()
	for message, times := range seen {
		if times != 1 {
			t.Errorf("%s was observed %d times", message, times)
		}
	}
}
