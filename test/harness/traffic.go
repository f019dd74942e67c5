package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
)

// Traffic is what is published while a mesh's brokers change, by one publisher for
// each destination, and what became of it.
type Traffic struct {
	Took map[string]bool // brokers that have taken publishes; read after End

	t        testing.TB
	mu       sync.Mutex
	sent     map[string]int            // by destination
	ran      map[string]map[string]int // by destination and message
	last     map[string]int            // of each group, the last number
	disorder []string

	publishers sync.WaitGroup
	stop       context.CancelFunc
}

const groupsOfTraffic = 3

// Begin has a mesh's queues, in order and not, topics and jobs be used until End.
func Begin(t testing.TB, m *Mesh) *Traffic {
	t.Helper()
	f := &Traffic{t: t, sent: map[string]int{}, ran: map[string]map[string]int{}, last: map[string]int{}, Took: map[string]bool{}}
	c := m.Connect()
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	Work(t, c, "flow", "plain", f.handler("plain"), client.Concurrency(8))
	Work(t, c, "flow", "turns", f.inTurn, client.FIFO(), client.Concurrency(4), client.Backoff(20*time.Millisecond))
	if _, err := c.Observe(t.Context(), "news", f.handler("news"), client.ID("reader")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Handle(t.Context(), "default", "do", func(ctx context.Context, _ []byte) ([]byte, error) {
		return nil, f.handler("jobs")(ctx, client.JobOf(ctx))
	}); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]client.Destination{
		"plain": client.Queue("flow", "plain"), "turns": client.Queue("flow", "turns"),
		"news": client.Topic("news"), "jobs": client.Job("default", "default", "do"),
	} {
		f.ran[name] = map[string]int{}
		f.publishers.Go(func() { f.publish(ctx, c, name, to) })
	}
	return f
}

// publish publishes numbers one after the other. What is refused, or not answered, is
// published again under the same id.
func (f *Traffic) publish(ctx context.Context, c *client.Client, name string, to client.Destination) {
	for n := 0; ctx.Err() == nil; {
		id := fmt.Sprintf("%s-%d", name, n)
		opts := []client.PublishOption{client.DedupID(id)}
		if name == "turns" {
			opts = append(opts, client.InGroup(strconv.Itoa(n%groupsOfTraffic)))
		}
		try, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		r, err := c.Publish(try, to, fmt.Appendf(nil, "%d", n), opts...)
		cancel()
		f.mu.Lock()
		if err == nil {
			n++
			f.sent[name] = n
			f.Took[r.Broker] = true
		}
		f.mu.Unlock()
	}
}

func (f *Traffic) handler(name string) client.Handler {
	return func(_ context.Context, d *client.Delivery) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ran[name][string(d.Data)]++
		return nil
	}
}

// inTurn notes what is not in the order of its group. Each twentieth fails at first.
func (f *Traffic) inTurn(_ context.Context, d *client.Delivery) error {
	var n int
	if err := json.Unmarshal(d.Data, &n); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.Attempt == 1 && n%20 == 7 {
		return errors.New("not yet")
	}
	if last, had := f.last[d.Group]; had && n > last+groupsOfTraffic {
		f.disorder = append(f.disorder, fmt.Sprintf("%d after %d", n, last))
	}
	f.last[d.Group] = n
	f.ran["turns"][string(d.Data)]++
	return nil
}

// More waits until so many more of each are published.
func (f *Traffic) More(n int) {
	f.t.Helper()
	f.mu.Lock()
	from := maps.Clone(f.sent)
	f.mu.Unlock()
	Await(f.t, "publishes", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name := range f.ran {
			if f.sent[name] < from[name]+n {
				return false
			}
		}
		return true
	})
}

// End stops publishing and waits until all of it was handled, once unless it may be
// twice, each group in order.
func (f *Traffic) End(twice bool) {
	f.t.Helper()
	f.stop()
	f.publishers.Wait()
	Await(f.t, "everything to be handled", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, n := range f.sent {
			if len(f.ran[name]) < n {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, ran := range f.ran {
		for id, n := range ran {
			if n > 1 && !twice {
				f.t.Errorf("%s: %s was handled %d times", name, id, n)
			}
		}
	}
	if len(f.disorder) > 0 {
		f.t.Errorf("out of order: %s", strings.Join(f.disorder, ", "))
	}
}
