package fault_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// A message that always fails comes exactly as often as its budget says, never
// early, after pauses that double; then it is dead, once.
func TestPausesDouble(t *testing.T) {
	t.Parallel()
	const backoff, budget = 100 * time.Millisecond, 4
	m := harness.Start(t)
	c := m.Connect()
	h := newHandle()
	work(t, c, "e", "r", h.run, client.MaxRetries(budget), client.Backoff(backoff))
	id := publish(t, c, "e", "r", nil)
	var failed time.Time
	for attempt := 1; attempt <= budget; attempt++ {
		d := h.next(t)
		same(t, d, id, attempt, 0)
		if attempt > 1 {
			want := backoff << (attempt - 2)
			t.Logf("pause before attempt %d: %v", attempt, d.at.Sub(failed))
			if d.at.Sub(failed) < want {
				t.Errorf("attempt %d is early: after %v of %v", attempt, d.at.Sub(failed), want)
			}
		}
		failed = time.Now()
		h.answer <- errOnPurpose
	}
	q := m.AwaitRest("e", harness.Guard)["/queue/e/r"]
	h.none(t)
	if letters := m.Dead("/queue/e/r"); q.Dead != 1 || len(letters) != 1 || letters[0].Attempts != budget {
		t.Errorf("queue %+v, dead letters %+v", q, letters)
	}
}

// A thousand retries that fall due over two seconds: none is early. How late
// they are is shown.
func TestRetriesAreNeverEarly(t *testing.T) {
	const messages, over, backoff = 1000, 2 * time.Second, 500 * time.Millisecond
	m := harness.Start(t)
	c := m.Connect()
	var mu sync.Mutex
	failed := make(map[string]time.Time)
	lateness := make(chan time.Duration, messages)
	work(t, c, "e", "r", func(_ context.Context, d *client.Delivery) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if d.Attempt > 1 {
			lateness <- now.Sub(failed[d.ID].Add(backoff))
			return nil
		}
		failed[d.ID] = time.Now()
		return errOnPurpose
	}, client.Concurrency(100), client.Backoff(backoff))
	pace := time.NewTicker(over / messages)
	defer pace.Stop()
	for range messages {
		<-pace.C
		publish(t, c, "e", "r", nil)
	}
	all := make([]time.Duration, 0, messages)
	for range messages {
		all = append(all, harness.Receive(t, "a retry", lateness))
	}
	slices.Sort(all)
	t.Logf("late by p50 %v, p99 %v, at most %v", all[messages/2], all[messages*99/100], all[messages-1])
	if all[0] < 0 {
		t.Errorf("one was early by %v", -all[0])
	}
}
