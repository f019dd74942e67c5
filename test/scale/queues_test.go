package scale_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// estate is many executions with many routes, and a message in each queue.
type estate struct {
	executions, routes int
	active, worked     int // executions with workers, and on how many of their routes
}

func (e estate) queue(number int) (execution, route string) {
	return "run-" + strconv.Itoa(number/e.routes), "step-" + strconv.Itoa(number%e.routes)
}

// isWorked says whether the queue of that number has a worker.
func (e estate) isWorked(number int) bool {
	return number/e.routes < e.active && number%e.routes < e.worked
}

func (e estate) queues() int { return e.executions * e.routes }

func (e estate) publish(p *publishing) {
	for i := range e.queues() {
		p.publish(client.Queue(e.queue(i)), i)
	}
	p.finish()
}

// work works the queues that of selects, side by side.
func (e estate) work(t *testing.T, m *harness.Mesh, b *book, of func(number int) bool) {
	t.Helper()
	const share = 500 // queues of a client
	var chosen []int
	for i := range e.queues() {
		if of(i) {
			chosen = append(chosen, i)
		}
	}
	for len(chosen) > 0 {
		some := chosen[:min(share, len(chosen))]
		chosen = chosen[len(some):]
		c := m.Connect()
		var registering sync.WaitGroup
		for _, i := range some {
			registering.Go(func() {
				execution, route := e.queue(i)
				if _, err := c.Work(t.Context(), execution, route, b.handle); err != nil {
					t.Errorf("working %s of %s: %v", route, execution, err)
				}
			})
		}
		registering.Wait()
	}
}

// Half a million queues, of which few are worked and one hangs, take little
// memory; the mesh stops and starts in seconds, and each message is there.
func TestManyQueues(t *testing.T) {
	alone(t)
	const behind = 100 // the one that hangs
	e := atLarge(t, estate{10_000, 50, 1000, 4}, estate{100, 50, 10, 4})
	drain := atLarge(t, "10s", "8s") // the one that hangs uses it up
	m := harness.Start(t, "--drain-timeout", drain)
	c := m.Connect()
	stuck := newBook(t, behind)
	release := hang(t, c, stuck)
	p := startPublishing(t, c, 128)
	publishing := timed(func() { e.publish(p) })
	for i := range behind {
		p.publish(client.Queue("stuck", "r"), i)
	}
	p.finish()
	b := newBook(t, e.queues())
	working := timed(func() {
		e.work(t, m, b, e.isWorked)
		b.await(e.active*e.worked, harness.Guard)
	})
	awaitCount(t, m, protocol.CountAcknowledged, e.active*e.worked)
	memory := m.Process().Memory()

	exiting := timed(func() {
		m.Terminate()
		if code := m.Exit(harness.Guard); code != 0 {
			t.Errorf("the mesh ends with %d", code)
		}
	})
	restarting := timed(m.Restart)
	again := m.Process().Memory()
	load := m.Stats()["router"]
	if left := load.Gauges["ready"] + load.Gauges["in_flight"]; left != float64(e.queues()-e.active*e.worked+behind) {
		t.Errorf("after the restart the mesh holds %v messages (%v), want %d", left, load.Gauges, e.queues()-e.active*e.worked+behind)
	}
	later := func(number int) bool { return number/e.routes == e.executions-1 } // of those that waited
	e.work(t, m, b, later)
	b.await(e.active*e.worked+e.routes, harness.Guard)
	b.once(func(number int) bool { return e.isWorked(number) || later(number) })
	release()
	stuck.await(behind, harness.Guard)
	stuck.once(all)
	figuref(t, "%d queues, %d of them worked: %d MiB (%d at most), %d MiB after a restart (%d at most); published in %v, worked in %v, exit %v, restart %v",
		e.queues(), e.active*e.worked, memory.Now/mebibyte, memory.Peak/mebibyte, again.Now/mebibyte, again.Peak/mebibyte, publishing, working, exiting, restarting)
	most(t, "memory", max(memory.Peak, again.Peak), 1024*mebibyte)
	most(t, "exit", exiting, 10*time.Second)
	most(t, "restart", restarting, 5*time.Second)
}

// hang works a queue with a handler that does not return until it is released.
func hang(t *testing.T, c *client.Client, b *book) (release func()) {
	t.Helper()
	released := make(chan struct{})
	h := func(ctx context.Context, d *client.Delivery) error {
		select {
		case <-released:
			return b.handle(ctx, d)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if _, err := c.Work(t.Context(), "stuck", "r", h, client.Concurrency(1), client.Timeout(longest)); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() { close(released) })
}

// awaitCount waits until the routers have counted that many.
func awaitCount(t *testing.T, m *harness.Mesh, counter string, n int) {
	t.Helper()
	harness.Await(t, strconv.Itoa(n)+" "+counter, func() bool { return m.Stats()["router"].Counters[counter] >= uint64(n) })
}
