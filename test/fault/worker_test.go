package fault_test

import (
	"errors"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// A worker killed with its message in hand costs the message nothing: another
// one gets the same attempt, soon.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	const soon = 30 * time.Second // on a machine that is slow
	m := harness.Start(t)
	c := m.Connect()
	spec := harness.WorkerSpec{URL: m.URL, Execution: "e", Route: "r", Backoff: 50 * time.Millisecond}

	first := harness.StartWorker(t, spec)
	id := publish(t, c, "e", "r", []byte(harness.FailHold))
	if e := first.Delivery(); e.ID != id || e.Attempt != 1 {
		t.Fatalf("unexpected: %+v", e)
	}
	if e := first.Delivery(); e.Attempt != 2 { // the first one failed, as it is told to
		t.Fatalf("unexpected: %+v", e)
	}
	first.Kill()
	killed := time.Now()
	h := newHandle()
	work(t, c, "e", "r", h.run)
	d := h.next(t)
	same(t, d, id, 2, 0)
	if took := d.at.Sub(killed); took > soon {
		t.Errorf("it came again after %v", took)
	}
	h.answer <- nil
	counters := m.AwaitRest("e", harness.Guard)["/queue/e/r"].Counters
	if counters[protocol.CountVanished] != 1 || counters[protocol.CountFailed] != 1 || counters[protocol.CountAcknowledged] != 1 {
		t.Errorf("counted %v", counters)
	}
}

// SIGTERM mid-handler: what the handler does not finish in its window is handed
// back unspent, and another gets it at once.
func TestTerminatedWorkerHandsBack(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	spec := harness.WorkerSpec{URL: m.URL, Execution: "e", Route: "r", Window: 100 * time.Millisecond}
	first, id := harness.StartWorker(t, spec), publish(t, c, "e", "r", []byte(harness.Hold))
	first.Delivery()
	h := newHandle()
	work(t, c, "e", "r", h.run)
	first.Terminate()
	if code := first.Exit(harness.Guard); code != 0 {
		t.Errorf("exit code %d", code)
	}
	same(t, h.next(t), id, 1, 0)
	h.answer <- nil
	counters := m.AwaitRest("e", harness.Guard)["/queue/e/r"].Counters
	if counters[protocol.CountVanished]+counters[protocol.CountFailed] != 0 || counters[protocol.CountAcknowledged] != 1 {
		t.Errorf("counted %v", counters)
	}
}

// SIGTERM while messages wait behind those in hand: the handlers get their
// window, nothing is dead, and what was not begun goes to others untouched.
func TestTerminatedWorkerFinishesWhatItHolds(t *testing.T) {
	t.Parallel()
	const concurrency, messages = 5, 40
	m := harness.Start(t)
	c := m.Connect()
	first := harness.StartWorker(t, harness.WorkerSpec{
		URL: m.URL, Execution: "e", Route: "r", Concurrency: concurrency, Window: harness.Guard,
	})
	for range messages {
		publish(t, c, "e", "r", []byte(harness.Slow))
	}
	begun := make(map[string]bool)
	for range concurrency {
		begun[first.Delivery().ID] = true
	}
	first.Terminate()
	h := newHandle()
	for range messages {
		h.answer <- nil
	}
	work(t, c, "e", "r", h.run)
	if code := first.Exit(harness.Guard); code != 0 {
		t.Errorf("exit code %d", code)
	}
	m.AwaitRest("e", harness.Guard)
	for e := range first.Events {
		if e.Outcome == protocol.Failed {
			t.Errorf("a handler had no time to finish: %+v", e)
		}
		begun[e.ID] = true
	}
	close(h.came)
	others := 0
	for d := range h.came {
		others++
		if begun[d.ID] || d.Attempt != 1 {
			t.Errorf("%s came again, attempt %d", d.ID, d.Attempt)
		}
	}
	if len(begun)+others != messages {
		t.Errorf("%d and %d of %d handled", len(begun), others, messages)
	}
	if letters := m.Dead(""); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
}

var errOnPurpose = errors.New("on purpose")
