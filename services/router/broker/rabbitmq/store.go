//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// maxBacklog is how many bytes may be on their way to the broker before
// publishes are refused.
const maxBacklog = 64 << 20

var errOverload = protocol.Errorf(protocol.CodeUnavailable, "the broker has %d MiB to confirm already: publish again a little later", maxBacklog>>20)

// store is what a lane has on the broker. Its methods are called in the lane's
// goroutine; what happens elsewhere comes back through post.
type store struct {
	b      *Broker
	ledger *ledger.Ledger
	lane   broker.Lane
	ctx    context.Context
	cancel context.CancelFunc
	out    *writer // of publishes
	copies *writer // of what failed: a queue that takes nothing holds up neither's others
	setup  *remote.Sequence

	mu    sync.Mutex
	calls []func()

	places   map[string]*place
	live     map[ledger.Key]*live
	idents   map[remote.Ident]*live // of the mesh's own messages
	finished remote.Memory
	dedups   remote.Dedups
	stored   uint64
}

// live is a message that was delivered and is not settled.
type live struct {
	entry   broker.Entry
	message *broker.Message
	meta    broker.Meta
	place   *place
	ident   remote.Ident
	own     bool
	kept    bool // a note has what became of it in its place

	x   *session
	tag uint64

	leaving bool // a copy of it is on its way
	lost    bool // the broker has it back
	again   bool // the broker had it back before
}

func newStore(b *Broker, l *ledger.Ledger, lane broker.Lane) *store {
	s := &store{
		b: b, ledger: l, lane: lane, out: newWriter(b.out), copies: newWriter(b.out), setup: remote.NewSequence(desks),
		places: make(map[string]*place), live: make(map[ledger.Key]*live), idents: make(map[remote.Ident]*live),
	}
	s.ctx, s.cancel = context.WithCancel(b.ctx)
	s.readPlaces()
	b.running.Go(func() { s.out.run(s.ctx) })
	b.running.Go(func() { s.copies.run(s.ctx) })
	b.running.Go(func() { s.setup.Run(s.ctx) })
	return s
}

// Close gives up what is not settled.
func (s *store) Close() { s.cancel() }

// post has the lane do f, together with what else is posted by then.
func (s *store) post(f func()) {
	s.mu.Lock()
	s.calls = append(s.calls, f)
	first := len(s.calls) == 1
	s.mu.Unlock()
	if first && !s.lane.Post(s.drain) {
		s.b.running.Go(s.postLater)
	}
}

// postLater posts once the lane is open, unless it is closed.
func (s *store) postLater() {
	for mesh.Pause(s.ctx, postAgain) && !s.lane.Post(s.drain) {
	}
}

const postAgain = 5 * time.Millisecond

func (s *store) drain() {
	s.mu.Lock()
	calls := s.calls
	s.calls = nil
	s.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// after posts f when the time has passed.
func (s *store) after(d time.Duration, f func()) {
	s.b.running.Go(func() {
		if mesh.Pause(s.ctx, d) {
			s.post(f)
		}
	})
}

// Publish writes a message to its queue, or to its topic's exchange.
func (s *store) Publish(p broker.Publish) error {
	if err := s.b.Away(); err != nil {
		return err
	}
	if s.out.backlog() > maxBacklog {
		return errOverload
	}
	to, err := s.destination(&p)
	if err != nil {
		return err
	}
	message, err := outward(p.Message, &broker.Meta{Attempt: 1, Spans: p.Spans})
	if err != nil {
		return err
	}
	if s.dedups.Repeats(&p, s.lane) {
		return nil
	}
	s.write(&publication{Publish: p, destination: to, out: outgoing{target: to.target, queues: to.queues(), message: message}})
	return nil
}

// Remembers says whether the publish would repeat another.
func (s *store) Remembers(p *broker.Publish) bool { return s.dedups.Remembers(p) }

// publication is a publish on its way.
type publication struct {
	broker.Publish
	destination destination
	out         outgoing
	again       bool
}

// destination is where a publish goes, and what has to be there.
type destination struct {
	target
	places []*place
}

// queues are those of a topic.
func (d *destination) queues() []string {
	if d.exchange == "" {
		return nil
	}
	all := make([]string, len(d.places))
	for i, p := range d.places {
		all[i] = p.names.queue
	}
	return all
}

func (s *store) destination(p *broker.Publish) (destination, error) {
	if p.Topic == "" {
		at, err := s.place(p.Queue)
		if err != nil {
			return destination{}, err
		}
		return destination{target{key: at.names.queue}, []*place{at}}, nil
	}
	exchange, _, err := s.b.exchanges(p.Topic)
	to := destination{target: target{exchange: exchange}}
	for _, c := range p.To {
		at, err := s.place(c.Queue)
		if err != nil {
			return destination{}, err
		}
		to.places = append(to.places, at)
	}
	return to, err
}

// write writes once the queues are there.
func (s *store) write(p *publication) {
	waits := 0
	var failed error
	ready := func(err error) {
		failed = errors.Join(failed, err)
		waits--
		if waits > 0 {
			return
		}
		if failed != nil {
			s.refuse(p, protocol.AsError(failed))
			return
		}
		p.out.done = func(err error) { s.post(func() { s.written(p, err) }) }
		s.out.write(&p.out)
	}
	waits = len(p.destination.places)
	for _, at := range p.destination.places {
		s.ensure(at, ready)
	}
}

// written answers a publish. What no queue took is written again once they are
// declared anew: somebody has deleted them.
func (s *store) written(p *publication, err error) {
	switch {
	case err == nil:
		s.accepted(p)
	case errors.Is(err, errUnroutable) && !p.again:
		p.again, p.out.returned = true, false
		for _, at := range p.destination.places {
			at.declared = false
		}
		s.write(p)
	case errors.Is(err, errUnroutable):
		s.refuse(p, protocol.Errorf(protocol.CodeUnavailable, "no queue of the broker's took the message: look at %s there, and publish again", p.destination.name()))
	case errors.Is(err, errNacked):
		s.refuse(p, protocol.Errorf(protocol.CodeUnavailable, "the broker refused the message for %s: it is full, or a policy limits it", p.destination.name()))
	case errors.Is(err, errSilent):
		s.refuse(p, protocol.Errorf(protocol.CodeUnavailable, "the message was not stored: %v; look at %s on the broker, and publish again", err, p.destination.name()))
	case errors.Is(err, errUnknown):
		s.refuse(p, protocol.Errorf(protocol.CodeUnavailable, "%v, and whether it was stored is not known: publish it again with the same %s", err, protocol.HeaderDedup))
	default:
		s.refuse(p, protocol.Errorf(protocol.CodeUnavailable, "the message was not stored (%v): publish it again", err))
	}
}

func (d *destination) name() string {
	if d.exchange != "" {
		return d.exchange
	}
	return d.key
}

func (s *store) accepted(p *publication) {
	s.stored++
	if p.Topic == "" {
		s.ledger.Count(p.Queue, ledger.Published, 1)
	}
	for _, to := range p.To {
		s.ledger.Count(to.Queue, ledger.Published, 1)
	}
	r := broker.Receipt{Seq: s.stored, ID: p.Message.ID}
	s.lane.Stored(p.Tag, r)
	s.dedups.Stored(&p.Publish, r, s.lane)
}

func (s *store) refuse(p *publication, err error) {
	s.lane.Refused(p.Tag, err)
	s.dedups.Refused(&p.Publish, err, s.lane)
}

// arrived takes deliveries.
func (s *store) arrived(x *session, batch []delivered) {
	if x.gone.Load() {
		return // they come again
	}
	for i := range batch {
		s.arrive(x, &batch[i])
	}
}

// arrive takes one delivery. What is there already, or was settled a moment
// ago, is a copy that was written twice, or comes again because its settlement
// was lost on the way.
func (s *store) arrive(x *session, d *delivered) {
	m, meta, own := inward(d)
	meta.Queue = x.c.place.queue
	if _, named := scope.NamedQueue(meta.Queue); named && !own {
		m.Headers = withJob(m.Headers, d.Headers)
	}
	v := &live{message: m, meta: meta, place: x.c.place, own: own, x: x, tag: d.DeliveryTag, again: d.Redelivered}
	v.ident = identOf(d, m, &meta)
	if own && s.known(v) {
		return
	}
	s.b.away.back(v.ident)
	s.recall(v)
	v.entry = broker.Entry{
		Key: s.lane.Key(), ID: m.ID, Queue: &v.place.ghost, Size: sizeOf(m), Priority: m.Priority,
		Group: ledger.GroupOf(m.Group), Generation: meta.Generation,
	}
	v.state()
	s.live[v.entry.Key] = v
	v.place.live++
	if own {
		s.idents[v.ident] = v
	}
	if !v.kept && v.meta.Due > time.Now().Add(time.Second).UnixNano() {
		s.Retry(&v.entry, v.meta) // its delay is longer than the broker's longest
		return
	}
	s.lane.Arrived(&v.entry, m)
}

// known says whether a delivery is nothing new, and sees to it: it was settled, or
// is a copy that was written twice. Or it is a message that leaves, and whose
// connection was lost meanwhile: its copy, on its way still, is for this delivery
// then.
func (s *store) known(v *live) bool {
	at := s.idents[v.ident]
	switch {
	case at != nil && at.lost:
		at.x, at.tag, at.lost, at.again = v.x, v.tag, false, true
	case at != nil || s.finished.Has(v.ident):
		v.x.settle(settling{tag: v.tag})
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

// lost gives up what a channel had delivered.
func (s *store) lost(x *session) {
	x.abandon() // what came since
	for _, v := range s.live {
		if v.x != x || v.lost {
			continue
		}
		v.lost = true
		if !v.leaving {
			s.goesBack(v)
			s.lane.Lost(&v.entry)
		}
	}
}

// goesBack forgets an entry that the broker has again.
func (s *store) goesBack(v *live) {
	s.forget(v)
	if v.ident.Copy > 0 {
		s.b.away.add(v.ident, 0)
	}
}

// forget takes an entry out of what is live.
func (s *store) forget(v *live) {
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
func (s *store) Entry(k ledger.Key) *broker.Entry {
	if v := s.live[k]; v != nil {
		return &v.entry
	}
	return nil
}

// Entries are those that are live.
func (s *store) Entries() iter.Seq[*broker.Entry] {
	return func(yield func(*broker.Entry) bool) {
		for _, v := range s.live {
			if !yield(&v.entry) {
				return
			}
		}
	}
}

// Queues are those of this lane.
func (s *store) Queues() iter.Seq2[string, []int64] {
	return func(yield func(string, []int64) bool) {
		for queue, p := range s.places {
			if !yield(queue, slices.Sorted(maps.Keys(p.holding))) {
				return
			}
		}
	}
}

// Has says whether the lane has used the queue.
func (s *store) Has(queue string) bool { return s.places[queue] != nil }

// Priorities is the highest the queue was made with.
func (s *store) Priorities(queue string) uint8 {
	if p := s.places[queue]; p != nil {
		return p.made.MaxPriority
	}
	return 0
}

// Live is how many of the queue's messages are not settled.
func (s *store) Live(queue string) int {
	if p := s.places[queue]; p != nil {
		return p.live
	}
	return 0
}

// Comes is how many messages may be on their way to the queue that nobody counts.
func (s *store) Comes(queue string) int {
	if s.places[queue] == nil {
		return 0
	}
	return s.b.away.count(queue)
}

// Message is the entry's message.
func (s *store) Message(e *broker.Entry) *broker.Message {
	if v := s.live[e.Key]; v != nil {
		return v.message
	}
	return nil
}

// Load has nothing to read: what is live is in memory.
func (s *store) Load(entries []*broker.Entry) {
	s.post(func() {
		for _, e := range entries {
			s.lane.Read(e, s.Message(e), nil)
		}
	})
}

// Meta is what is known of the entry.
func (s *store) Meta(e *broker.Entry) broker.Meta {
	v := s.live[e.Key]
	if v == nil {
		return broker.Meta{Queue: e.Queue.Name, Generation: e.Generation, Attempt: e.Attempt}
	}
	meta := v.meta
	meta.Due = e.Due
	return meta
}

// Settle acknowledges the delivery.
func (s *store) Settle(e *broker.Entry, how broker.Counter) { s.settle(e, how, nil) }

// SettleNow tells the lane.
func (s *store) SettleNow(e *broker.Entry, how broker.Counter) {
	s.settle(e, how, func() { s.lane.Settled(e) })
}

// settle counts at once: an acknowledgement that the broker does not take is
// made good when it delivers the message again, unless that is a stranger's,
// which nobody can tell from another.
func (s *store) settle(e *broker.Entry, how broker.Counter, then func()) {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return
	}
	s.forget(v)
	s.drop(v)
	s.ledger.Count(v.place.queue, how, 1)
	done := func(taken bool) {
		if !taken && !v.own {
			s.ledger.Count(v.place.queue, ledger.Superseded, 1)
		}
		if then != nil {
			then()
		}
	}
	s.acknowledge(v, done)
}

// acknowledge settles the delivery on its channel. That it was is remembered for
// a while, should the broker not have heard of it.
func (s *store) acknowledge(v *live, done func(taken bool)) {
	if v.own {
		s.finished.Add(v.ident)
	}
	if v.x.gone.Load() {
		s.post(func() { done(false) })
		return
	}
	v.x.settle(settling{tag: v.tag, done: done})
}

// GiveBack returns an entry to its queue.
func (s *store) GiveBack(e *broker.Entry) {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return
	}
	s.goesBack(v)
	if !v.x.gone.Load() {
		v.x.settle(settling{tag: v.tag, requeue: true})
	}
}
