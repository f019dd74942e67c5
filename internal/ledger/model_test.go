package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// reference is a ledger as simple as can be: what is live and what was counted.
type reference struct {
	live     map[Key]refEntry
	counters map[string]*counters
	notes    map[string]string
}

type refEntry struct {
	body    string
	meta    Meta
	decided string
}

func (r *reference) queue(name string) *counters {
	if r.counters[name] == nil {
		r.counters[name] = &counters{}
	}
	return r.counters[name]
}

// model drives one ledger beside its reference.
type model struct {
	*proc
	w       *world
	ref     reference
	keys    []Key
	counter byte
}

func newModel(seed uint64) *model {
	w := newWorld(seed, 2)
	w.faults, w.rate = false, 0
	m := &model{w: w, ref: reference{live: map[Key]refEntry{}, counters: map[string]*counters{}, notes: map[string]string{}}}
	m.proc = w.begin(w.names[0])
	w.begin(w.names[1])
	m.settle()
	m.l.owner = &modelOwner{simOwner: &simOwner{p: m.proc}, m: m}
	return m
}

// settle lets everything finish.
func (m *model) settle() {
	for range 100_000 {
		m.w.step()
		if m.w.steps%20 == 0 && m.w.quiet() {
			return
		}
	}
	panic("it does not settle down: " + m.w.busy())
}

// modelOwner keeps the reference up to date with what is reported.
type modelOwner struct {
	*simOwner
	m *model
}

func (o *modelOwner) Committed(c *Commit) {
	for i, e := range c.Entries {
		switch c.Kind {
		case KindAccept:
			o.m.ref.live[e.Key] = refEntry{body: string(c.Message.Body), meta: c.Tag.([]Meta)[i]}
			o.m.ref.queue(e.Queue.Name)[Published]++
			o.m.keys = append(o.m.keys, e.Key)
		case KindSettle:
			o.m.ref.queue(e.Queue.Name)[Acknowledged]++
			delete(o.m.ref.live, e.Key)
		case KindDone:
			delete(o.m.ref.live, e.Key)
		case KindRestate, KindDecide:
			x := o.m.ref.live[e.Key]
			x.meta = c.Tag.(Meta)
			if c.Kind == KindDecide {
				x.decided = "sim-01"
				o.m.ref.queue(e.Queue.Name)[Sent]++
				o.m.ref.queue(e.Queue.Name)[Retried]++
			}
			o.m.ref.live[e.Key] = x
		}
	}
}

func (o *modelOwner) Loaded(e *Entry, msg *Message, meta Meta, err error) {
	x, live := o.m.ref.live[e.Key]
	if err != nil || live != (msg != nil) || live && (string(msg.Body) != x.body || fmt.Sprint(meta) != fmt.Sprint(x.meta)) {
		panic(fmt.Sprintf("entry %d loaded as %v %v %v, want %v", e.Key, msg, meta, err, x))
	}
}

// TestModel stages random records and compares the ledger with the reference,
// also after a takeover.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rapid.Uint64().Draw(rt, "seed"))
		defer func() {
			for len(m.w.procs) > 0 {
				m.w.procs[0].crash()
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"publish": m.publish, "settle": m.settleOne, "restate": m.restate, "decide": m.decide,
			"count": m.count, "note": m.note, "load": m.load, "forward": m.forward, "reopen": m.reopen,
			"": m.compare,
		})
	})
}

func (m *model) entry(rt *rapid.T) *Entry {
	m.keys = slices.DeleteFunc(m.keys, func(k Key) bool { return m.l.Entry(k) == nil })
	if len(m.keys) == 0 {
		rt.Skip("nothing is live")
	}
	return m.l.Entry(rapid.SampledFrom(m.keys).Draw(rt, "key"))
}

func drawMeta(rt *rapid.T) Meta {
	return Meta{
		Queue:   queueName(rapid.IntRange(0, 2).Draw(rt, "queue")),
		Attempt: rapid.Uint32().Draw(rt, "attempt"), Due: rapid.Int64().Draw(rt, "due"),
		Error:       rapid.StringN(0, 20, 40).Draw(rt, "error"),
		LastFailure: rapid.Int64().Draw(rt, "failure"), Spans: rapid.SampledFrom([]string{"", "a", "ab"}).Draw(rt, "spans"),
		Group: rapid.Uint64Range(0, 2).Draw(rt, "its group"),
	}
}

func (m *model) publish(rt *rapid.T) {
	m.counter++
	metas := rapid.SliceOfN(rapid.Custom(drawMeta), 1, 3).Draw(rt, "metas")
	msg := &Message{Priority: rapid.Byte().Draw(rt, "priority"), Group: rapid.StringN(0, 8, -1).Draw(rt, "group"), Body: rapid.SliceOfN(rapid.Byte(), 0, 1000).Draw(rt, "body")}
	msg.ID[0] = m.counter
	m.w.oracle.bodies[msg.ID] = string(msg.Body)
	if err := m.l.Accept(msg, metas, nil, metas); err != nil {
		rt.Fatal(err)
	}
	m.turn()
}

func (m *model) settleOne(rt *rapid.T) {
	m.l.Settle(m.entry(rt), Acknowledged, nil)
	m.turn()
}

func (m *model) restate(rt *rapid.T) {
	e, meta := m.entry(rt), drawMeta(rt)
	meta.Queue = e.Queue.Name
	meta.Group = e.ownGroup()
	m.l.Restate(e, meta, meta)
	m.turn()
}

func (m *model) decide(rt *rapid.T) {
	e, meta := m.entry(rt), drawMeta(rt)
	meta.Queue, meta.Group = e.Queue.Name, e.ownGroup()
	if m.l.Decide(e, "sim-01", meta, meta) {
		m.l.CountWith(e.Queue, Retried)
	}
	m.turn()
}

func (m *model) count(rt *rapid.T) {
	name, n := queueName(rapid.IntRange(0, 4).Draw(rt, "queue")), rapid.Uint64Range(0, 1000).Draw(rt, "n")
	m.l.Count(name, Delivered, n)
	m.ref.queue(name)[Delivered] += n
}

func (m *model) note(rt *rapid.T) {
	key, value := rapid.StringN(1, 2, 8).Draw(rt, "key"), rapid.StringN(0, 8, 32).Draw(rt, "value")
	if err := m.l.PutNote(key, []byte(value), nil); err != nil {
		rt.Fatal(err)
	}
	m.ref.notes[key] = value
}

func (m *model) load(rt *rapid.T) {
	m.l.Load(m.entry(rt))
	m.turn()
}

func (m *model) forward(rt *rapid.T) {
	m.l.forwardTo(rapid.Uint64Range(1, uint64(len(m.w.all))).Draw(rt, "target"))
	m.settle()
	m.w.purge()
}

// reopen has a new owner read the log; the old one does not know.
func (m *model) reopen(*rapid.T) {
	m.settle()
	m.crash()
	owner := m.l.owner.(*modelOwner)
	m.proc = m.w.begin(m.ledger)
	m.settle()
	owner.simOwner.p = m.proc
	m.l.owner = owner
}

// compare waits until all is committed and handed over, then compares.
func (m *model) compare(rt *rapid.T) {
	m.settle()
	if have, want := slices.Collect(maps.Keys(m.l.entries)), slices.Collect(maps.Keys(m.ref.live)); len(have) != len(want) {
		rt.Fatalf("%d are live, want %d", len(have), len(want))
	}
	for k, want := range m.ref.live {
		e := m.l.Entry(k)
		if e == nil || e.Decided != (want.decided != "") || e.Queue.Name != want.meta.Queue || e.Attempt != want.meta.Attempt || e.Due != want.meta.Due {
			rt.Fatalf("entry %d is %+v, want %+v", k, e, want)
		}
		if spans, at := m.l.Traced(e); spans != want.meta.Spans || spans != "" && at != want.meta.LastFailure {
			rt.Fatalf("entry %d is traced as %q at %d, want %+v", k, spans, at, want.meta)
		}
	}
	for name, want := range m.ref.counters {
		if q := m.l.Queue(name); *want != (counters{}) && (q == nil || counters(q.Counters) != *want) {
			rt.Fatalf("queue %s counts %v, want %v", name, q, *want)
		}
	}
	for key, want := range m.ref.notes {
		if got := m.l.Note(key); got == nil || string(got) != want {
			rt.Fatalf("note %q is %q, want %q", key, got, want)
		}
	}
	m.w.checkPins(m.proc)
}

// TestWindow compares a receiver's window with a set of all numbers seen.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &receiver{low: 1, seen: map[uint64]struct{}{}}
		all, settled := map[uint64]bool{}, uint64(1)
		for range rapid.IntRange(0, 200).Draw(rt, "handovers") {
			n := rapid.Uint64Range(settled, settled+30).Draw(rt, "number")
			if w.has(n) != all[n] {
				rt.Fatalf("%d: seen %v, want %v", n, w.has(n), all[n])
			}
			w.add(n, settled)
			all[n] = true
			for all[settled] && rapid.Bool().Draw(rt, "settle") {
				settled++
			}
			for k := range w.seen {
				if k < w.low {
					rt.Fatalf("%d is kept below %d", k, w.low)
				}
			}
		}
	})
}

// TestEntryStaysSmall: a million waiting messages are a million of these.
func TestEntryStaysSmall(t *testing.T) {
	if n := unsafe.Sizeof(Entry{}); n > 144 {
		t.Errorf("an entry takes %d bytes, more than its size class, 144", n)
	}
}
