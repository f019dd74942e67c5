package fault_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// A handler that runs while the mesh goes and comes back, politely or not, runs
// once: longer than a worker may be silent, and than a new owner of its queue
// waits for workers to say what they do.
func TestLongHandlerOutlivesTheMesh(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*harness.Mesh){
		"killed":     (*harness.Mesh).Kill,
		"terminated": (*harness.Mesh).Terminate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restarts, length := 3, 20*time.Second
			if harness.Soak(t) > 0 {
				restarts, length = 25, 2*time.Minute
			}
			m := harness.Start(t, "--drain-timeout", "1s")
			c := m.Connect()
			var runs atomic.Int32
			begun, done := make(chan struct{}, 16), make(chan struct{}, 16)
			work(t, c, "e", "r", func(context.Context, *client.Delivery) error {
				runs.Add(1)
				begun <- struct{}{}
				harness.Wait(t, length)
				done <- struct{}{}
				return nil
			}, client.Concurrency(4))
			publish(t, c, "e", "r", nil)
			harness.Receive(t, "the delivery", begun)
			for range restarts {
				end(m)
				m.Restart()
			}
			harness.ReceiveWithin(t, length+harness.Guard, "the handler's end", done)
			q := m.AwaitRest("e", harness.Guard)["/queue/e/r"]
			if runs.Load() != 1 || q.Counters[protocol.CountAcknowledged] != 1 || q.Dead != 0 {
				t.Errorf("it ran %d times; %+v", runs.Load(), q)
			}
		})
	}
}

// A mesh that stands still for longer than anybody may be silent holds nobody's
// silence against them when it goes on.
func TestPausedMesh(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	h := newHandle()
	work(t, c, "e", "r", h.run, client.Concurrency(1))
	id := publish(t, c, "e", "r", nil)
	same(t, h.next(t), id, 1, 0)
	harness.Wait(t, protocol.WorkerSilence) // what is young is not given up anyway
	m.Process().Pause()
	harness.Wait(t, protocol.WorkerSilence+5*time.Second)
	m.Process().Resume()
	next := publish(t, c, "e", "r", nil)
	harness.Wait(t, 3*time.Second) // time for it to go wrong
	h.none(t)
	h.answer <- nil
	same(t, h.next(t), next, 1, 0)
	h.answer <- nil
	q := m.AwaitRest("e", harness.Guard)["/queue/e/r"]
	if q.Counters[protocol.CountVanished] != 0 || q.Counters[protocol.CountAcknowledged] != 2 || q.Dead != 0 {
		t.Errorf("%+v", q)
	}
	h.none(t)
}

// A mesh that is told to stop does so by its drain deadline, whatever handlers
// do; what they hold is neither lost nor dead, nor begun again elsewhere.
func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	const drain, margin = 8 * time.Second, 30 * time.Second // also on a machine that is slow
	m := harness.Start(t, "--drain-timeout", drain.String())
	c := m.Connect()
	h := newHandle()
	work(t, c, "e", "r", h.run)
	id := publish(t, c, "e", "r", nil)
	same(t, h.next(t), id, 1, 0)
	began := time.Now()
	m.Terminate()
	if code := m.Exit(drain + margin); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("ended after %v", time.Since(began))
	m.Restart()
	h.answer <- nil
	if q := m.AwaitRest("e", harness.Guard)["/queue/e/r"]; q.Dead != 0 || q.Counters[protocol.CountAcknowledged] != 1 {
		t.Errorf("%+v", q)
	}
	h.none(t)
}

// What was in hand, and what was not, when the mesh was killed together never
// exceeds the concurrency after it is back.
func TestConcurrencyOutlivesTheMesh(t *testing.T) {
	t.Parallel()
	const limit, messages = 3, 20
	m := harness.Start(t)
	c := m.Connect()
	var running, most atomic.Int32
	h := newHandle()
	work(t, c, "e", "r", func(ctx context.Context, d *client.Delivery) error {
		for now := running.Add(1); now > most.Load(); {
			most.CompareAndSwap(most.Load(), now)
		}
		defer running.Add(-1)
		return h.run(ctx, d)
	}, client.Concurrency(limit))
	for range messages {
		publish(t, c, "e", "r", nil)
	}
	for range limit {
		h.next(t)
	}
	m.Kill()
	m.Restart()
	for range messages - limit { // one for each that ends
		h.answer <- nil
		same := h.next(t)
		if same.Attempt != 1 {
			t.Errorf("attempt %d", same.Attempt)
		}
	}
	for range limit {
		h.answer <- nil
	}
	m.AwaitRest("e", harness.Guard)
	h.none(t)
	if most.Load() != limit {
		t.Errorf("%d at once, want %d", most.Load(), limit)
	}
}

// Restarts between failures do not begin the count again.
func TestBudgetOutlivesTheMesh(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	h := newHandle()
	work(t, c, "e", "r", h.run, client.MaxRetries(3), client.Backoff(200*time.Millisecond))
	id := publish(t, c, "e", "r", []byte("x"))
	for attempt := 1; attempt <= 3; attempt++ {
		same(t, h.next(t), id, attempt, 0)
		m.Kill() // in the handler
		h.answer <- errOnPurpose
		m.Restart()
	}
	m.AwaitRest("e", harness.Guard)
	h.none(t)
	letters := m.Dead("/queue/e/r")
	if len(letters) != 1 || letters[0].Attempts != 3 || letters[0].Reason != protocol.ReasonFailed {
		t.Errorf("dead letters: %+v", letters)
	}
	m.Kill()
	m.Restart()
	if n := len(m.Dead("/queue/e/r")); n != 1 {
		t.Errorf("%d dead letters after a restart", n)
	}
}
