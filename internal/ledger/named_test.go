package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The tests that ledgers stand or fall with, each by itself; the simulation
// meets all of this by chance.

// stage starts a world without faults, with an owner for each of two ledgers.
func stageWorld(t *testing.T) (w *world, a, b *proc) {
	t.Helper()
	w = newWorld(1, 2)
	w.faults, w.rate, w.manual = false, 0, true
	t.Cleanup(func() {
		for len(w.procs) > 0 {
			w.procs[0].crash()
		}
	})
	a, b = w.begin("sim-00"), w.begin("sim-01")
	w.finish(t)
	return w, a, b
}

// finish lets everything finish.
func (w *world) finish(t *testing.T) {
	t.Helper()
	for range 100_000 {
		w.step()
		if w.steps%20 == 0 && w.quiet() {
			return
		}
	}
	t.Fatalf("it does not settle down: %s", w.busy())
}

// until lets things happen until cond holds.
func (w *world) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 100_000 {
		if cond() {
			return
		}
		w.step()
	}
	t.Fatalf("never: %s", what)
}

// put publishes one message for the queues.
func (p *proc) put(t *testing.T, queues ...string) []*Entry {
	t.Helper()
	p.w.oracle.counter++
	m := &Message{Body: []byte("body")}
	m.ID[15] = byte(p.w.oracle.counter)
	metas := make([]Meta, len(queues))
	for i, q := range queues {
		metas[i] = Meta{Queue: q, Attempt: 1}
		p.w.oracle.copies[copyOf{m.ID, q}] = &copyState{}
	}
	p.w.oracle.bodies[m.ID] = "body"
	first := Key(p.l.last + 1)
	if err := p.l.Accept(m, metas, nil, nil); err != nil {
		t.Fatal(err)
	}
	p.w.finish(t)
	var entries []*Entry
	for i := range queues {
		entries = append(entries, p.l.Entry(first+Key(i)))
	}
	return entries
}

// successor crashes the owner and has another take over.
func (p *proc) successor(t *testing.T) *proc {
	t.Helper()
	p.crash()
	q := p.w.begin(p.ledger)
	p.w.finish(t)
	return q
}

func (p *proc) live() (undecided, decided int) {
	for e := range p.l.Entries() {
		if e.Decided {
			decided++
		} else {
			undecided++
		}
	}
	return undecided, decided
}

// TestDecidedThenCrash: what is decided is never ready again, and goes on.
func TestDecidedThenCrash(t *testing.T) {
	w, a, b := stageWorld(t)
	b.paused = true // nobody takes it yet
	e := a.put2(t, b)
	meta := a.l.Meta(e)
	meta.Error = "told to the other ledger"
	a.l.Decide(e, "sim-01", meta, nil)
	w.until(t, "the decision", func() bool { return e.Decided })
	a.crash()
	a = w.begin("sim-00")
	w.until(t, "the takeover", func() bool { return a.l != nil })
	if undecided, decided := a.live(); undecided != 0 || decided != 1 {
		t.Fatalf("%d ready and %d decided, want 0 and 1", undecided, decided)
	}
	b.paused = false
	w.finish(t)
	if n, _ := a.l.Live(); n != 0 {
		t.Errorf("%d are left behind", n)
	}
	if n, _ := b.live(); n != 1 {
		t.Errorf("%d arrived, want 1", n)
	}
}

// put2 publishes while other is paused.
func (p *proc) put2(t *testing.T, other *proc) *Entry {
	t.Helper()
	was := other.paused
	other.paused = false
	e := p.put(t, "/q")[0]
	other.paused = was
	return e
}

// TestAZombieHandsOver: an owner that was paused before it could hand over
// does so after its successor did, and even after its successor was done.
func TestAZombieHandsOver(t *testing.T) {
	w, a, b := stageWorld(t)
	e := a.put(t, "/q")[0]
	a.l.Decide(e, "sim-01", a.l.Meta(e), nil)
	w.until(t, "the offer", func() bool { return len(w.calls) > 0 })
	late := w.calls
	w.calls, a.paused = nil, true
	successor := w.begin("sim-00")
	w.until(t, "the successor's handover", func() bool {
		if successor.l == nil {
			return false
		}
		n, _ := successor.l.Live()
		return n == 0
	})
	w.clock += int64(3 * time.Hour)
	w.calls = append(w.calls, late...)
	w.until(t, "the late handover", func() bool { return len(w.calls) == 0 && len(b.posts) == 0 && b.l.idle() })
	if n, _ := b.live(); n != 1 {
		t.Errorf("the other ledger has %d of them, want 1", n)
	}
	a.paused = false
	a.l.Count("", Refused, 1)
	w.until(t, "the old owner's end", func() bool { return a.dead })
	w.finish(t)
}

// TestPurgeInsideReplay: a takeover whose log is purged while it reads starts
// over, and nothing settled rises again.
func TestPurgeInsideReplay(t *testing.T) {
	w, a, b := stageWorld(t)
	keep := a.put(t, "/q")[0]
	for range 12 {
		e := a.put(t, "/q")[0]
		a.l.Settle(e, Acknowledged, nil)
		w.finish(t)
	}
	// What is live is written forward, but the log does not say so yet.
	floor := a.l.frames.floor().seq
	a.l.forwardTo(uint64(len(w.all)) + 1)
	a.wake = w.clock
	w.until(t, "the state was written forward", func() bool { return a.l.frames.floor().seq > floor })
	a.paused = true
	reader := w.begin("sim-00")
	w.until(t, "some of the log was read", func() bool { return reader.reads >= 3 })
	reader.paused, a.paused = true, false
	b.l.forwardTo(uint64(len(w.all)) + 1)
	b.wake = w.clock
	w.until(t, "the floors were stated", func() bool {
		return a.l.forward.target == 0 && a.l.idle() && b.l.forward.target == 0 && b.l.idle()
	})
	w.purge()
	if w.first < 10 {
		t.Fatalf("purged to %d only", w.first)
	}
	reader.paused = false
	w.until(t, "the takeover", func() bool { return reader.l != nil })
	if n, _ := reader.l.Live(); n != 1 || reader.l.Entry(keep.Key) == nil {
		t.Errorf("%d messages, want the one", n)
	}
}

// TestHalfSettledFanOut: written forward, a message is owed to those only to
// whom it was still owed.
func TestHalfSettledFanOut(t *testing.T) {
	w, a, _ := stageWorld(t)
	entries := a.put(t, "/1", "/2", "/3")
	a.l.Settle(entries[1], Acknowledged, nil)
	m := a.l.Meta(entries[2])
	m.Attempt, m.Error = 2, "once"
	a.l.Restate(entries[2], m, nil)
	w.finish(t)
	a.put(t, "/4")
	a.l.forwardTo(uint64(len(w.all)))
	a.wake = w.clock
	w.finish(t)
	w.purge()
	a = a.successor(t)
	var have []string
	for e := range a.l.Entries() {
		have = append(have, fmt.Sprint(e.Queue.Name, e.Attempt))
	}
	if want := []string{"/11", "/32", "/41"}; !slices.Equal(have, want) {
		t.Errorf("after a takeover there are %v, want %v", have, want)
	}
	w.checkContents(a)
}

// TestTheSubjectIsNeverEmpty: when nothing is live and all that may be is
// purged, the newest frame is still there to fence a writer that thinks the
// ledger is new.
func TestTheSubjectIsNeverEmpty(t *testing.T) {
	w, a, _ := stageWorld(t)
	for range 5 {
		a.l.Settle(a.put(t, "/q")[0], Acknowledged, nil)
		w.finish(t)
	}
	for _, p := range slices.Clone(w.procs) {
		p.l.forwardTo(uint64(len(w.all)) + 1)
		p.wake = w.clock
	}
	w.finish(t)
	w.purge()
	if w.first < 8 {
		t.Fatalf("purged to %d only", w.first)
	}
	for _, name := range w.names {
		if w.lastOf(name) == 0 {
			t.Errorf("nothing is left of %s", name)
		}
	}
	if _, err := w.store(&simPublish{ledger: "sim-00", expected: 0}); err == nil {
		t.Error("a writer that thinks the ledger is new was let in")
	}
}

// TestALateFrame: a commit whose answer did not come is proved absent by a
// barrier, sent again, and refused when the first copy arrives at last.
func TestALateFrame(t *testing.T) {
	w, a, _ := stageWorld(t)
	m := &Message{}
	m.ID[15] = 77
	w.oracle.copies[copyOf{m.ID, "/q"}] = &copyState{}
	if err := a.l.Accept(m, []Meta{{Queue: "/q"}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	a.turn()
	late := w.wire
	w.wire = nil
	if len(late) != 1 {
		t.Fatalf("%d frames on the wire, want 1", len(late))
	}
	w.clock += int64(answerTime)
	a.wake = w.clock
	w.finish(t)
	if n, _ := a.l.Live(); n != 1 {
		t.Fatalf("%d messages, want 1", n)
	}
	if _, err := w.store(late[0]); err == nil {
		t.Error("the late frame was let in after its barrier")
	}
	w.checkLog(a)
}

// TestAdopt: a message that comes from outside counts as taken over, and once however
// often it is adopted, also by the next owner.
func TestAdopt(t *testing.T) {
	_, a, _ := stageWorld(t)
	m := &Message{Body: []byte("body")}
	m.ID[15] = 99
	a.w.oracle.copies[copyOf{m.ID, "/q"}] = &copyState{}
	a.w.oracle.bodies[m.ID] = "body"
	once := DedupOf("/q", "\x00its name")
	adopt := func() {
		t.Helper()
		if err := a.l.Adopt(m, Meta{Queue: "/q", Attempt: 2, Error: "no luck"}, &once, nil); err != nil {
			t.Fatal(err)
		}
		a.w.finish(t)
	}
	adopt()
	adopt()
	a = a.successor(t)
	if !a.l.Remembers(once) {
		t.Error("the next owner does not know of it")
	}
	adopt()
	q := a.l.Queue("/q")
	if n, _ := a.l.Live(); n != 1 || q.Counters[Taken] != 1 || q.Counters[Published] != 0 {
		t.Errorf("%d messages, taken over %d, published %d: want 1, 1, 0", n, q.Counters[Taken], q.Counters[Published])
	}
	if audit := a.l.Audit(); len(audit.Receiving) != 0 {
		t.Errorf("it counts as handed over: %+v", audit.Receiving)
	}
}
