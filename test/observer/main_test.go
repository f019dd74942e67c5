// Package observer_test observes topics in a whole mesh: who receives what, what
// is tried again, whose an id is, and what becomes of the queue of one that is
// gone.
package observer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const topic = "orders.created"

func queueOf(id string) string { return topic + "::observer:" + id }

func settings(graceMs, retentionMs int64) protocol.SettingsChange {
	return protocol.SettingsChange{
		Observers: protocol.ObserverSettingsChange{ObserverGraceMs: &graceMs}, SubscriberRetentionMs: &retentionMs,
	}
}

// diary is what an observer was given: each payload, and when.
type diary struct {
	t *testing.T

	mu    sync.Mutex
	given map[string][]time.Time
	fails error // what its handler returns
}

func newDiary(t *testing.T) *diary { return &diary{t: t, given: map[string][]time.Time{}} }

func (d *diary) handle(_ context.Context, m *client.Delivery) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.given[string(m.Data)] = append(d.given[string(m.Data)], time.Now())
	return d.fails
}

// total is how many deliveries there were.
func (d *diary) total() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, times := range d.given {
		n += len(times)
	}
	return n
}

func (d *diary) times(payload string) []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.given[payload]
}

// await waits for that many deliveries.
func (d *diary) await(n int) {
	d.t.Helper()
	harness.Await(d.t, fmt.Sprintf("%d deliveries", n), func() bool { return d.total() >= n })
}

// once checks that it was given each of these payloads once, and no other.
func (d *diary) once(payloads ...string) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, payload := range payloads {
		if n := len(d.given[payload]); n != 1 {
			d.t.Errorf("%q was delivered %d times", payload, n)
		}
	}
	if len(d.given) != len(payloads) {
		d.t.Errorf("delivered: %d payloads, want %d", len(d.given), len(payloads))
	}
}

func observe(t *testing.T, c *client.Client, h client.Handler, opts ...client.WorkOption) *client.Worker {
	t.Helper()
	w, err := c.Observe(t.Context(), topic, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// publish publishes each payload, and expects it to be stored for so many.
func publish(t *testing.T, c *client.Client, listeners int, payloads ...string) {
	t.Helper()
	for _, payload := range payloads {
		receipt, err := c.Publish(t.Context(), client.Topic(topic), []byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		if receipt.Listeners != listeners {
			t.Errorf("%q is stored for %d, want %d", payload, receipt.Listeners, listeners)
		}
	}
}

func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i)
	}
	return all
}

func dispose(t *testing.T, w *client.Worker) {
	t.Helper()
	if err := w.Dispose(t.Context()); err != nil {
		t.Error(err)
	}
}

// balanced waits until nothing of a queue is under way, and checks that as many
// messages have ended as were published.
func balanced(t *testing.T, m *harness.Mesh, queue string) protocol.QueueInfo {
	t.Helper()
	var q protocol.QueueInfo
	harness.Await(t, queue+" is at rest", func() bool {
		q = m.QueueNamed(queue)
		return q.Ready+q.InFlight+q.Waiting+q.Moving == 0
	})
	c := q.Counters
	in := c[protocol.CountPublished] + c[protocol.CountRedriven]
	out := c[protocol.CountAcknowledged] + c[protocol.CountDeadLettered] + c[protocol.CountFiltered]
	if in != out {
		t.Errorf("%s: %d in, %d out: %v", queue, in, out, c)
	}
	return q
}

var errTold = errors.New("told to fail")
