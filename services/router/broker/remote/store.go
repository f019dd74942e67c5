package remote

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// maxBacklog is how many bytes may be on their way to the broker before
// publishes are refused.
const maxBacklog = 64 << 20

var errOverload = protocol.Errorf(protocol.CodeUnavailable, "the broker has %d MiB to confirm already: publish again a little later", maxBacklog>>20)

// Host is the broker that stores belong to.
type Host struct {
	Name    string
	Log     *slog.Logger
	Context context.Context //nolint:containedctx // the broker's life
	Running *sync.WaitGroup // who is waited for when it ends
	Setups  int             // how many queues of a lane are made side by side
	Away    *Away           // nil: the broker counts what waits until it is back
}

// Store is what a lane has on the broker. Its methods are called in the lane's
// goroutine; what happens elsewhere comes back through post.
type Store struct {
	host   Host
	side   Side
	ledger *ledger.Ledger
	lane   broker.Lane
	ctx    context.Context //nolint:containedctx // the lane's life
	cancel context.CancelFunc
	setup  *Sequence

	poster *Poster

	places        map[string]*place
	removals      map[string]*removal   // by queue
	unbinding     map[string]*unbinding // by topic
	live          map[ledger.Key]*live
	idents        map[Ident]*live // of the mesh's own messages
	finished      Memory
	interruptions generations[Ident, *copying]
	dedups        Dedups
	stored        uint64
	keeps         bool // there may be notes about messages that stay
}

var (
	_ broker.RemoteStore = (*Store)(nil)
	_ broker.Prioritized = (*Store)(nil)
	_ broker.Remembering = (*Store)(nil)
	_ broker.Hurrying    = (*Store)(nil)
)

// live is a message that was delivered and is not settled.
type live struct {
	entry   broker.Entry
	message *broker.Message
	meta    broker.Meta
	place   *place
	ident   Ident
	own     bool
	kept    bool // a note has what became of it in its place

	x   Session
	tag string
	at  string // Delivery.Place

	leaving bool // a copy of it is on its way
	lost    bool // the broker has it back
	again   bool // the broker had it back before
}

// NewStore makes the store of a lane. Its side is made with the context that
// ends when the lane has another owner.
func NewStore(host Host, l *ledger.Ledger, lane broker.Lane, side func(ctx context.Context) Side) *Store {
	s := &Store{
		host: host, ledger: l, lane: lane, setup: NewSequence(max(1, host.Setups)),
		places: make(map[string]*place), removals: make(map[string]*removal), unbinding: make(map[string]*unbinding),
		live: make(map[ledger.Key]*live), idents: make(map[Ident]*live),
	}
	s.ctx, s.cancel = context.WithCancel(host.Context)
	s.poster = NewPoster(s.ctx, lane, host.Running)
	s.side = side(s.ctx)
	s.readPlaces()
	host.Running.Go(func() { s.setup.Run(s.ctx) })
	return s
}

// Close gives up what is not settled.
func (s *Store) Close() { s.cancel() }

// post has the lane do f.
func (s *Store) post(f func()) { s.poster.Post(f) }

// after posts f when the time has passed.
func (s *Store) after(d time.Duration, f func()) {
	s.host.Running.Go(func() {
		if Sleep(s.ctx, d) {
			s.post(f)
		}
	})
}

// sink takes what is delivered from a place.
type sink struct {
	s *Store
	p *place
}

// Arrived implements Sink.
func (k sink) Arrived(x Session, batch []Delivery) {
	k.s.post(func() {
		if x.Gone() {
			return // they come again
		}
		k.p.came += len(batch)
		for i := range batch {
			if k.p.demand.Window == 0 { // it was on its way here
				x.GiveBack(batch[i].Tag)
				continue
			}
			k.s.arrive(k.p, x, &batch[i])
		}
	})
}

// Lost implements Sink.
func (k sink) Lost(x Session) { k.s.post(func() { k.s.lost(x) }) }

// arrive takes one delivery. What is there already, or was settled a moment
// ago, is a copy that was written twice, or comes again because its settlement
// was lost on the way.
func (s *Store) arrive(p *place, x Session, d *Delivery) {
	m, meta := d.Message, d.Meta
	meta.Queue = p.queue
	v := &live{message: m, meta: meta, place: p, own: d.Own, x: x, tag: d.Tag, at: d.Place, again: d.Again}
	v.ident = Ident{meta.Queue, m.ID, meta.Generation, d.Copy}
	if v.own && s.known(v) {
		return
	}
	s.host.Away.Back(v.ident)
	s.recall(v)
	v.entry = broker.Entry{
		Key: s.lane.Key(), ID: m.ID, Queue: &p.ghost, Size: sizeOf(m), Priority: m.Priority,
		Group: ledger.GroupOf(m.Group), Generation: meta.Generation,
	}
	v.state()
	s.live[v.entry.Key] = v
	p.live++
	if v.own {
		s.idents[v.ident] = v
	}
	if !v.kept && v.meta.Due > time.Now().Add(time.Second).UnixNano() {
		s.Retry(&v.entry, v.meta) // the broker's clock is ahead, or its longest delay was too short
		return
	}
	if !s.goesOn(v) {
		s.lane.Arrived(&v.entry, m)
	}
}

// known says whether a delivery is nothing new, and sees to it: it was settled, or
// is a copy that was written twice. Or it is a message whose handler has ended, and
// whose connection was lost meanwhile: what follows that is for this delivery then.
// What the broker delivers once more though it was not given back is new while a
// handler has it: who has the earlier delivery settles nothing.
func (s *Store) known(v *live) bool {
	at := s.idents[v.ident]
	reissued := at != nil && at.at != "" && at.at == v.at
	switch {
	case at != nil && (at.lost || reissued && s.ends(at)):
		at.x, at.tag, at.lost, at.again = v.x, v.tag, false, true
	case reissued:
		s.forget(at)
		s.lane.Lost(&at.entry)
		return false
	case at != nil || s.finished.Has(v.ident):
		v.x.Settle(v.tag, nil)
	default:
		return false
	}
	return true
}

// state has the entry say what its meta does.
func (v *live) state() {
	e, m := &v.entry, &v.meta
	e.Attempt, e.Vanished, e.Incomplete, e.Due, e.FirstFailure = m.Attempt, m.Vanished, m.Incomplete, m.Due, m.FirstFailure
}

func sizeOf(m *broker.Message) uint32 {
	n := len(m.Body)
	for name, values := range m.Headers {
		n += len(name) + len(values[0])
	}
	return uint32(n)
}

// lost gives up what a session had delivered.
func (s *Store) lost(x Session) {
	for _, v := range s.live {
		if v.x != x || v.lost {
			continue
		}
		v.lost = true
		if !s.ends(v) {
			s.goesBack(v)
			s.lane.Lost(&v.entry)
		}
	}
}

// ends says whether a message's handler has ended, so that it stays what it is if the
// broker has it back: it is not to be run again.
func (s *Store) ends(v *live) bool { return v.leaving || v.own && s.lane.Ended(&v.entry) }

// goesBack forgets an entry that the broker has again.
func (s *Store) goesBack(v *live) {
	s.forget(v)
	if v.ident.Copy > 0 {
		s.host.Away.add(v.ident, 0)
	}
}

// forget takes an entry out of what is live.
func (s *Store) forget(v *live) {
	if s.live[v.entry.Key] != v {
		return
	}
	delete(s.live, v.entry.Key)
	v.place.live--
	if s.idents[v.ident] == v {
		delete(s.idents, v.ident)
	}
}

// Entry is the live entry of a key.
func (s *Store) Entry(k ledger.Key) *broker.Entry {
	if v := s.live[k]; v != nil {
		return &v.entry
	}
	return nil
}

// Entries are those that are live.
func (s *Store) Entries() iter.Seq[*broker.Entry] {
	return func(yield func(*broker.Entry) bool) {
		for _, v := range s.live {
			if !yield(&v.entry) {
				return
			}
		}
	}
}

// Live is how many of the queue's messages were delivered here and are neither settled
// nor back.
func (s *Store) Live(queue string) int {
	p := s.places[queue]
	if p == nil {
		return 0
	}
	if k, keeps := p.taking.(Shelving); keeps {
		return p.live + k.Shelved()
	}
	return p.live
}

// Comes is how many messages may be on their way to the queue that nobody counts.
func (s *Store) Comes(queue string) int {
	if s.places[queue] == nil {
		return 0
	}
	return s.host.Away.count(queue)
}

// Priorities is the highest the queue was made with.
func (s *Store) Priorities(queue string) uint8 {
	if p := s.places[queue]; p != nil {
		return p.made.MaxPriority
	}
	return 0
}

// Message is the entry's message.
func (s *Store) Message(e *broker.Entry) *broker.Message {
	if v := s.live[e.Key]; v != nil {
		return v.message
	}
	return nil
}

// Load has nothing to read: what is live is in memory.
func (s *Store) Load(entries []*broker.Entry) {
	s.post(func() {
		for _, e := range entries {
			s.lane.Read(e, s.Message(e), nil)
		}
	})
}

// Meta is what is known of the entry.
func (s *Store) Meta(e *broker.Entry) broker.Meta {
	v := s.live[e.Key]
	if v == nil {
		return broker.Meta{Queue: e.Queue.Name, Generation: e.Generation, Attempt: e.Attempt}
	}
	meta := v.meta
	meta.Due = e.Due
	return meta
}

// Settle acknowledges the delivery.
func (s *Store) Settle(e *broker.Entry, how broker.Counter) { s.settle(e, how, nil) }

// SettleNow tells the lane.
func (s *Store) SettleNow(e *broker.Entry, how broker.Counter) {
	s.settle(e, how, func() { s.lane.Settled(e) })
}

// settle counts at once: an acknowledgement that the broker does not take is
// made good when it delivers the message again, unless that is a stranger's,
// which nobody can tell from another.
func (s *Store) settle(e *broker.Entry, how broker.Counter, then func()) {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return
	}
	s.forget(v)
	s.drop(v)
	s.ledger.Count(v.place.queue, how, 1)
	if v.own && then == nil {
		s.acknowledge(v, nil)
		return
	}
	s.acknowledge(v, func(taken bool) {
		if taken && then == nil {
			return
		}
		s.post(func() {
			if !taken && !v.own {
				s.ledger.Count(v.place.queue, ledger.Superseded, 1)
			}
			if then != nil {
				then()
			}
		})
	})
}

// acknowledge settles the delivery in its session. That it was is remembered for
// a while, should the broker not have heard of it.
func (s *Store) acknowledge(v *live, done func(taken bool)) {
	if v.own {
		s.finished.Add(v.ident)
	}
	v.x.Settle(v.tag, done)
}

// GiveBack returns an entry to its queue.
func (s *Store) GiveBack(e *broker.Entry) {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return
	}
	s.goesBack(v)
	v.x.GiveBack(v.tag)
}
