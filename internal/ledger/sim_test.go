package ledger

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

var (
	simSeed  = flag.Uint64("ledger.seed", 0, "replay the one simulated history with this seed")
	simCount = flag.Int("ledger.histories", 400, "simulated histories")
)

// TestSimulation runs random histories of several ledgers that hand over to
// each other, with crashes, owners that are paused and wake up stale, lost
// answers, late frames, and purges. WAYBILL_SOAK=<duration> runs it that long.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	soak, err := time.ParseDuration(cmpOr(os.Getenv("WAYBILL_SOAK"), "0s"))
	if err != nil {
		t.Fatalf("WAYBILL_SOAK: %v", err)
	}
	base, end := uint64(1), time.Now().Add(soak)
	if soak > 0 {
		base = uint64(time.Now().UnixNano())
	}
	n := 0
	for ; n < *simCount || time.Now().Before(end); n++ {
		simulate(t, base+uint64(n))
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories", n)
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// simulate runs one history and checks it.
func simulate(t *testing.T, seed uint64) {
	w := newWorld(seed, 2+int(seed%3))
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("seed %d, step %d: %v\n%s", seed, w.steps, r, strings.Join(w.trace[max(0, len(w.trace)-60):], "\n"))
			if *simSeed != 0 {
				panic(r)
			}
		}
		for len(w.procs) > 0 {
			w.procs[0].crash()
		}
	}()
	length := 300 + w.rng.IntN(3000)
	for range length {
		w.step()
	}
	w.settleDown()
	w.check()
}

// step lets one thing happen.
func (w *world) step() {
	w.steps++
	w.ensureOwners()
	switch n := w.rng.IntN(1000); {
	case n < 320:
		w.turnOne()
	case n < 620:
		w.runOne()
	case n < 800:
		if len(w.wire) > 0 {
			w.arrive(w.rng.IntN(len(w.wire)))
		}
	case n < 900:
		w.carryCall()
	case n < 1000-w.rate:
		w.clock += int64(w.rng.IntN(30)) * int64(time.Millisecond)
	default:
		if w.faults {
			w.fault()
		} else {
			w.clock += int64(6 * time.Second)
		}
	}
}

// fault is a thing that ought not to happen, or seldom does.
func (w *world) fault() {
	n := w.rng.IntN(100)
	if w.tidy && w.chance(0.7) {
		n = 40 + w.rng.IntN(45)
	}
	switch {
	case n < 15:
		w.pick().crash()
	case n < 25:
		w.begin(w.names[w.rng.IntN(len(w.names))]) // the old owner goes on
	case n < 40:
		p := w.pick()
		p.paused = !p.paused
		w.notef("%s#%d paused %v", p.ledger, p.id, p.paused)
	case n < 60:
		w.purge()
	case n < 85:
		if p := w.pick(); p.l != nil && len(w.all) > 0 {
			target := 1 + w.rng.Uint64N(uint64(len(w.all)))
			w.notef("%s#%d forward to %d", p.ledger, p.id, target)
			p.l.forwardTo(target)
		}
	case n < 92:
		w.clock += int64(6 * time.Second)
	case n < 96:
		w.clock += int64(90+w.rng.IntN(50)) * int64(time.Second)
	default:
		if p := w.pick(); p.l != nil {
			w.notef("%s#%d stops", p.ledger, p.id)
			p.l.closing = true
		}
	}
}

func (w *world) pick() *proc { return w.procs[w.rng.IntN(len(w.procs))] }

// ensureOwners starts an owner for a ledger that has none, in time.
func (w *world) ensureOwners() {
	if w.manual {
		return
	}
	for _, name := range w.names {
		if !slices.ContainsFunc(w.procs, func(p *proc) bool { return p.ledger == name && !p.paused }) && w.chance(0.2) {
			w.begin(name)
		}
	}
	for len(w.procs) == 0 {
		w.begin(w.names[0])
	}
}

func (w *world) turnOne() {
	p := w.pick()
	if p.paused {
		if !w.manual && w.chance(0.02) {
			p.paused = false
		}
		return
	}
	if len(p.posts) > 0 || p.wake != 0 && p.wake <= w.clock || w.chance(0.5) {
		p.turn()
	}
}

func (w *world) runOne() {
	p := w.pick()
	if p.paused || len(p.coros) == 0 {
		return
	}
	if c := p.coros[w.rng.IntN(len(p.coros))]; c.until <= w.clock {
		p.run(c)
	}
}

// carryCall delivers a handover to whoever thinks it owns the ledger.
func (w *world) carryCall() {
	if len(w.calls) == 0 {
		return
	}
	i := w.rng.IntN(len(w.calls))
	c := w.calls[i]
	w.calls = slices.Delete(w.calls, i, i+1)
	for _, p := range w.procs {
		if p.ledger != c.dest || p.l == nil {
			continue
		}
		lost := w.faults && w.chance(0.1)
		p.posts = append(p.posts, func() {
			p.l.receive(c.data, func(b []byte) {
				if !lost {
					c.answer(b)
				}
			})
		})
	}
}

// settleDown ends the faults and lets everything finish.
func (w *world) settleDown() {
	w.faults = false
	for _, p := range w.procs {
		p.paused = false
	}
	forward := w.chance(0.5)
	for range 400_000 {
		w.step()
		if w.steps%200 != 0 {
			continue
		}
		if len(w.procs) > len(w.names) {
			w.nudge()
		}
		if w.quiet() {
			if !forward {
				return
			}
			forward = false
			for _, p := range w.procs {
				p.l.forwardTo(uint64(len(w.all)))
				p.wake = w.clock
			}
			w.purge()
		}
	}
	panic("it does not settle down: " + w.busy())
}

// nudge has stale owners find out.
func (w *world) nudge() {
	for _, p := range w.procs {
		if p.l != nil && p.l.idle() {
			p.l.Count("", Refused, 1)
			p.wake = w.clock
		}
	}
}

func (w *world) quiet() bool { return w.busy() == "" }

// busy says what is still going on.
func (w *world) busy() string {
	if len(w.wire) > 0 {
		return "frames on the wire"
	}
	if len(w.procs) != len(w.names) {
		return fmt.Sprintf("%d processes", len(w.procs))
	}
	for _, p := range w.procs {
		switch {
		case p.l == nil || !p.l.idle():
			return p.ledger + " has something staged"
		case len(p.posts) > 0 || len(p.coros) > 0:
			return p.ledger + " waits for something"
		case p.l.forward.target > 0 || p.l.forward.ready:
			return p.ledger + " writes forward"
		}
		for _, b := range p.l.outbox {
			if len(b.slots) > 0 {
				return p.ledger + " hands over"
			}
		}
	}
	return ""
}

// oracle knows what was promised.
type oracle struct {
	procs   int
	counter uint64
	bodies  map[uuid.UUID]string
	copies  map[copyOf]*copyState
	gone    map[keyOf]ending // by commits that were reported
	dedups  map[string]Dedup
}

// copyOf is one recipient of one message, wherever it is.
type copyOf struct {
	id    uuid.UUID
	queue string
}

type copyState struct {
	answered bool // its publish was
	leaves   bool // somebody staged its end
	ended    bool // and was told that it is committed
}

type keyOf struct {
	ledger string
	key    Key
}

// ending is where in the log an entry was decided, settled or done.
type ending struct {
	kind Kind
	seq  uint64
}

func newOracle() *oracle {
	return &oracle{
		bodies: map[uuid.UUID]string{}, copies: map[copyOf]*copyState{}, gone: map[keyOf]ending{}, dedups: map[string]Dedup{},
	}
}

// simOwner does random things with a ledger, and believes nothing.
type simOwner struct {
	p       *proc
	entries []*Entry
}

func (o *simOwner) key(e *Entry) keyOf { return keyOf{o.p.ledger, e.Key} }

func (o *simOwner) Opened(l *Ledger) {
	for e := range l.Entries() {
		o.see(e)
	}
}

// see checks an entry that is live.
func (o *simOwner) see(e *Entry) {
	g, was := o.p.w.oracle.gone[o.key(e)]
	if was && g.seq <= o.p.l.seq && (g.kind != KindDecide || !e.Decided) {
		panic(fmt.Sprintf("%s#%d: entry %d is live again after kind %d at %d", o.p.ledger, o.p.id, e.Key, g.kind, g.seq))
	}
	if !e.Decided {
		o.entries = append(o.entries, e)
	}
}

func (o *simOwner) Committed(c *Commit) {
	or := o.p.w.oracle
	for _, e := range c.Entries {
		s := or.copies[copyOf{e.ID, e.Queue.Name}]
		switch c.Kind {
		case KindAccept:
			o.see(e)
			if !c.Handover {
				s.answered = true
			}
		case KindSettle:
			s.ended = true
			or.gone[o.key(e)] = ending{KindSettle, c.Seq}
		case KindDecide, KindDone:
			or.gone[o.key(e)] = ending{c.Kind, c.Seq}
		}
	}
	if c.Duplicate && or.bodies[c.ID] == "" {
		panic("a duplicate of nothing")
	}
}

func (o *simOwner) Loaded(e *Entry, m *Message, meta Meta, err error) {
	if err != nil {
		panic(fmt.Sprintf("loading %d: %v", e.Key, err))
	}
	if m == nil {
		if !e.flags.is(gone) {
			panic("nothing loaded")
		}
		return
	}
	if string(m.Body) != o.p.w.oracle.bodies[e.ID] || m.ID != e.ID || meta.Queue != e.Queue.Name || meta.Attempt != e.Attempt {
		panic(fmt.Sprintf("%s: entry %d loaded as %+v %+v", o.p.ledger, e.Key, m, meta))
	}
	if events, leftOut := StoryOf(m, &meta); uint64(len(events))+leftOut != uint64(meta.Attempt-1+meta.Generation) {
		panic(fmt.Sprintf("%s: entry %d, which is at attempt %d of generation %d, has a story of %d events and %d left out", o.p.ledger, e.Key, meta.Attempt, meta.Generation, len(events), leftOut))
	}
}

func (o *simOwner) Incoming(m *Message, meta *Meta) error {
	if string(m.Body) != o.p.w.oracle.bodies[m.ID] || meta.Generation > 0 && meta.Reason != protocol.ReasonFailed {
		panic(fmt.Sprintf("%s: %s arrives as %+v %+v", o.p.ledger, m.ID, m, meta))
	}
	if o.p.w.faults && o.p.w.chance(0.1) {
		return protocol.Errorf(protocol.CodeQuotaExceeded, "not now")
	}
	meta.Vanished++
	return nil
}

func (o *simOwner) Tick(time.Time) time.Time { return time.Time{} }
func (o *simOwner) Closed(error, []any)      {}

// act stages a few random records.
func (o *simOwner) act() {
	for range o.p.w.rng.IntN(4) {
		o.one()
	}
}

func (o *simOwner) one() {
	w, l := o.p.w, o.p.l
	switch n := w.rng.IntN(100); {
	case n < 40:
		o.publish()
	case n < 60:
		o.with(func(e *Entry) {
			var tag any
			if w.chance(0.3) {
				tag = "told"
			}
			if l.Settle(e, Acknowledged, tag) {
				w.oracle.copies[copyOf{e.ID, e.Queue.Name}].leaves = true
			}
		})
	case n < 70:
		o.with(func(e *Entry) {
			m := l.Meta(e)
			m.Attempt++
			m.Error = strings.Repeat("x", w.rng.IntN(60))
			m.Tell(Event{Kind: Attempted, Attempt: e.Attempt, Error: m.Error})
			l.Restate(e, m, nil)
		})
	case n < 88:
		o.with(func(e *Entry) {
			dest := w.names[w.rng.IntN(len(w.names))]
			if dest != o.p.ledger {
				m := l.Meta(e)
				m.Generation++
				m.Reason = protocol.ReasonFailed
				m.Tell(Event{Kind: Redrove, Generation: m.Generation})
				if l.Decide(e, dest, m, nil) {
					l.CountWith(e.Queue, Retried)
				}
			}
		})
	case n < 90:
		value := []byte{byte(n), byte(w.rng.IntN(256))}
		if w.chance(0.3) {
			value = nil
		}
		_ = l.PutNote(fmt.Sprint("note", w.rng.IntN(3)), value, nil)
	case n < 93:
		l.Count(queueName(w.rng.IntN(3)), Delivered, 1)
	case n < 94:
		l.ForgetQueue(queueName(w.rng.IntN(3)))
	default:
		o.with(func(e *Entry) { l.Load(e) })
	}
}

func queueName(i int) string { return fmt.Sprintf("/queue/e/%d", i) }

// with does something with a random live entry.
func (o *simOwner) with(f func(*Entry)) {
	for len(o.entries) > 0 {
		i := o.p.w.rng.IntN(len(o.entries))
		e := o.entries[i]
		if e.flags.is(gone) || e.Decided {
			o.entries[i] = o.entries[len(o.entries)-1]
			o.entries = o.entries[:len(o.entries)-1]
			continue
		}
		f(e)
		return
	}
}

func (o *simOwner) publish() {
	w, or := o.p.w, o.p.w.oracle
	or.counter++
	m := &Message{PublishedAt: w.clock, Priority: uint8(w.clock % 3), Group: []string{"", "a", "b"}[w.clock/3%3], Headers: map[string][]string{"h": {"v", ""}}}
	binary.BigEndian.PutUint64(m.ID[8:], or.counter)
	m.Body = []byte(fmt.Sprintf("%s %s", m.ID, strings.Repeat("b", w.rng.IntN(600))))
	or.bodies[m.ID] = string(m.Body)
	metas := make([]Meta, 1, 3)
	for i := range metas {
		metas[i] = Meta{Queue: queueName(w.rng.IntN(3)), Attempt: 1}
	}
	if w.chance(0.2) {
		metas = []Meta{{Queue: queueName(0), Attempt: 1}, {Queue: queueName(1), Attempt: 1}, {Queue: queueName(2), Attempt: 1, Extra: []byte{0x98, 0x06, 0x01}}}
	}
	var d *Dedup
	if w.chance(0.2) {
		h := DedupOf(metas[0].Queue, strconv.Itoa(w.rng.IntN(20)))
		d = &h
	}
	if err := o.p.l.Accept(m, metas, d, m.ID); err != nil {
		panic(err)
	}
	for i := range metas {
		or.copies[copyOf{m.ID, metas[i].Queue}] = &copyState{}
	}
}

// check compares what is with what was promised.
func (w *world) check() {
	live := map[copyOf]string{}
	for _, p := range w.procs {
		w.checkLog(p)
		for e := range p.l.Entries() {
			c := copyOf{e.ID, e.Queue.Name}
			if other, twice := live[c]; twice {
				panic(fmt.Sprintf("%v is in %s and in %s", c, other, p.ledger))
			}
			live[c] = p.ledger
			if w.oracle.copies[c] == nil || w.oracle.copies[c].ended {
				panic(fmt.Sprintf("%v in %s was settled, or never published", c, p.ledger))
			}
		}
	}
	for c, s := range w.oracle.copies {
		if _, is := live[c]; s.answered && !s.leaves && !is {
			panic(fmt.Sprintf("%v is lost", c))
		}
	}
	w.checkDedup()
}

// checkDedup finds two publishes with one id within the window.
func (w *world) checkDedup() {
	type where struct {
		ledger string
		hash   Dedup
	}
	last := map[where]int64{}
	for _, f := range w.all {
		h, records, err := decodeFrame(f.data)
		must(err)
		list, err := decodeRecords(nil, records, plain)
		must(err)
		for i := range list {
			if r := &list[i]; r.kind == KindAccept && r.dedup != nil {
				k := where{f.ledger, *r.dedup}
				if t, ok := last[k]; ok && h.time-t < dedupWindow {
					panic(fmt.Sprintf("%s: a publish was stored twice within %d ns", f.ledger, h.time-t))
				}
				last[k] = h.time
			}
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// checkLog replays a ledger's log from the start and from legal points of
// purge, and reads every live entry where the ledger says it is.
func (w *world) checkLog(p *proc) {
	want := snapshot(p.l.state)
	floor := p.l.forward.stated
	points := []uint64{1}
	for from := uint64(2); from <= floor; from++ {
		if w.all[from-1].ledger == p.ledger {
			points = append(points, from)
		}
	}
	for len(points) > 12 { // keep the first and the last
		i := 1 + w.rng.IntN(len(points)-2)
		points = slices.Delete(points, i, i+1)
	}
	for _, from := range points {
		s := w.replay(p.ledger, from)
		if got := snapshot(s); got != want {
			panic(fmt.Sprintf("%s: the state replayed from %d (floor %d) differs\n--- replayed\n%s--- live\n%s", p.ledger, from, floor, got, want))
		}
	}
	w.checkPins(p)
	w.checkContents(p)
	checkBalance(p)
}

// checkBalance has what came into each queue be what left it and what is there.
func checkBalance(p *proc) {
	for _, q := range p.l.Audit().Queues {
		if in, out := In(&q.Counters), Out(&q.Counters); in != out+q.Kept {
			panic(fmt.Sprintf("%s: %d came into %s, %d left it, and %d are there: %v", p.ledger, in, q.Name, out, q.Kept, q.Counters))
		}
		if q.Counters[Retried] != q.Counters[Sent] {
			panic(fmt.Sprintf("%s: of %s %d were sent, %d are counted with that", p.ledger, q.Name, q.Counters[Sent], q.Counters[Retried]))
		}
	}
}

// replay applies the whole log of a ledger from a sequence on.
func (w *world) replay(ledger string, from uint64) *state {
	s := newState()
	next := uint64(0)
	for seq := from; seq <= uint64(len(w.all)); seq++ {
		f := w.all[seq-1]
		if f.ledger != ledger {
			continue
		}
		h, records, err := decodeFrame(f.data)
		must(err)
		if next != 0 && h.first != next || h.epoch < s.epoch {
			panic(fmt.Sprintf("%s: frame %d begins with %d, not %d (epoch %d after %d)", ledger, seq, h.first, next, h.epoch, s.epoch))
		}
		next = h.next()
		list, err := decodeRecords(nil, records, s.intern)
		must(err)
		must(countAgrees(&h, list))
		s.begin(&h, seq)
		for i := range list {
			s.apply(&list[i])
		}
		s.end()
	}
	return s
}

// checkPins counts what pins each frame.
func (w *world) checkPins(p *proc) {
	pins := map[*frame]int{}
	s := p.l.state
	for _, e := range s.entries {
		pins[e.at]++
		pins[e.stated]++
	}
	for _, q := range s.queues {
		pins[q.counted]++
	}
	for _, n := range s.notes {
		pins[n.at]++
	}
	for _, t := range s.senders {
		pins[t.at]++
	}
	for _, r := range s.receivers {
		pins[r.at]++
	}
	for _, d := range s.dedup.seen {
		pins[d.at]++
	}
	pins[s.secret.at]++
	delete(pins, nil)
	for f, n := range pins {
		if f.pins != n || f.seq < s.frames.floor().seq {
			panic(fmt.Sprintf("%s: frame %d has %d pins, %d things pin it (floor %d)", p.ledger, f.seq, f.pins, n, s.frames.floor().seq))
		}
	}
	var weight, bytes int64
	type bodyAt struct {
		seq   uint64
		index uint32
	}
	counted := map[bodyAt]bool{}
	for _, e := range s.entries {
		weight += weightEntry
		if t, ok := s.traced[e.Key]; ok {
			weight += weightTraced + int64(len(t.spans))
		}
		if at := (bodyAt{e.at.seq, e.index}); !counted[at] {
			counted[at] = true
			bytes += int64(e.Size)
		}
	}
	if weight += bytes; bytes != s.bytes {
		panic(fmt.Sprintf("%s has %d bytes, its messages %d", p.ledger, s.bytes, bytes))
	}
	for _, q := range s.queues {
		if q.counted != nil {
			weight += weightQueue + int64(len(q.Name))
		}
	}
	for _, n := range s.notes {
		weight += int64(len(n.key) + len(n.value))
	}
	if weight != s.weight {
		panic(fmt.Sprintf("%s weighs %d, its parts %d", p.ledger, s.weight, weight))
	}
}

// checkContents reads every entry's message and meta by place, and compares
// them with the last that the whole log says of it.
func (w *world) checkContents(p *proc) {
	messages, metas := map[Key]string{}, map[Key]string{}
	for _, f := range w.all {
		if f.ledger != p.ledger {
			continue
		}
		h, records, err := decodeFrame(f.data)
		must(err)
		ordinal := h.first
		must(eachRecord(records, func(_ uint32, raw []byte) error {
			r, err := decodeRecord(raw, plain)
			must(err)
			switch r.kind {
			case KindAccept:
				for i := range r.to {
					messages[Key(ordinal+uint64(i))], metas[Key(ordinal+uint64(i))] = string(r.raw), string(r.to[i].raw)
				}
			case KindRestate, KindDecide:
				c, err := contentOf(raw, 0)
				must(err)
				metas[r.key] = string(c.meta)
			}
			ordinal += r.ordinals()
			return nil
		}))
	}
	var list []*Entry
	var wants []want
	for _, e := range p.l.inOrder() {
		wants = append(wants, e.wantMessage(2*len(list)), e.wantMeta(2*len(list)+1))
		list = append(list, e)
	}
	runs := p.l.runs(wants)
	p.start(func() func() {
		p.l.fetcher.fetch(context.Background(), wants, runs, func(wt want, c content) error {
			e := list[wt.entry/2]
			if wt.entry%2 == 0 && string(c.message) != messages[e.Key] {
				panic(fmt.Sprintf("%s: message of %d differs", p.ledger, e.Key))
			}
			if wt.entry%2 == 1 && string(c.meta) != metas[e.Key] {
				panic(fmt.Sprintf("%s: meta of %d differs", p.ledger, e.Key))
			}
			return nil
		}, func(_ want, err error) { panic(err) })
		return func() {}
	})
	for len(p.coros) > 0 {
		p.run(p.coros[0])
	}
}
