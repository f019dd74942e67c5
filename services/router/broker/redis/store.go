//go:build !no_redis

package redis

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

const (
	// maxBacklog is how many bytes may be on their way to Redis before publishes are
	// refused.
	maxBacklog = 64 << 20
	// maxLive is how many messages of a subscriber's wait in memory to be handled, and
	// maxArriving how many bytes wait for a lane: what comes then is dropped.
	maxLive     = 10_000
	maxArriving = 64 << 20
)

var errOverload = protocol.Errorf(protocol.CodeUnavailable, "Redis has %d MiB to take already: publish again a little later", maxBacklog>>20)

// store is what a lane has on Redis: what its subscribers have not handled yet. It
// is used in the lane's goroutine, but for received.
type store struct {
	b      *Broker
	ledger *ledger.Ledger
	lane   broker.Lane
	ctx    context.Context //nolint:containedctx // the lane's life
	cancel context.CancelFunc
	poster *remote.Poster

	places map[string]*place            // by queue
	topics map[string]map[string]*place // by topic and queue
	live   map[ledger.Key]*live
	dedups remote.Dedups
	stored uint64

	arriving atomic.Int64 // bytes
}

var _ broker.RemoteStore = (*store)(nil)

// place is a subscriber's queue.
type place struct {
	queue string
	ghost ledger.Queue // what its entries say they are in
	topic string       // that it receives; empty: none
	taken bool         // somebody takes its messages
	live  int
}

// live is a message that is not handled yet.
type live struct {
	entry   broker.Entry
	message *broker.Message
	meta    broker.Meta
	place   *place
}

func newStore(b *Broker, l *ledger.Ledger, lane broker.Lane) *store {
	s := &store{
		b: b, ledger: l, lane: lane, places: make(map[string]*place), topics: make(map[string]map[string]*place), live: make(map[ledger.Key]*live),
	}
	s.ctx, s.cancel = context.WithCancel(b.ctx)
	s.poster = remote.NewPoster(s.ctx, lane, &b.running)
	return s
}

// Close gives up what is not handled.
func (s *store) Close() {
	s.cancel()
	for topic := range s.topics {
		s.b.hub.unsubscribe(s, topic)
	}
}

// Publish publishes on a topic's channel, whoever receives it.
func (s *store) Publish(p broker.Publish) error {
	if err := s.b.Away(); err != nil {
		return err
	}
	if s.b.writer.size.Load() > maxBacklog {
		return errOverload
	}
	body, err := encode(p.Topic, p.Message, p.Spans)
	if err != nil {
		return err
	}
	if s.dedups.Repeats(&p, s.lane) {
		return nil
	}
	s.b.writer.write(outgoing{channel: channelOf(p.Topic), body: body, done: func(err error) {
		s.poster.Post(func() { s.published(&p, err) })
	}})
	return nil
}

func (s *store) published(p *broker.Publish, err error) {
	switch {
	case err == nil:
		s.stored++
		r := broker.Receipt{Seq: s.stored, ID: p.Message.ID}
		s.lane.Stored(p.Tag, r)
		s.dedups.Stored(p, r, s.lane)
	case isRefusal(err):
		s.refuse(p, protocol.Errorf(protocol.CodeUnavailable, "Redis does not take the message for topic %s: %v", p.Topic, err))
	default:
		s.refuse(p, protocol.Errorf(protocol.CodeUnavailable, "the connection was lost before Redis answered (%v), and whether the message was published is not known: publish it again if twice does no harm", err))
	}
}

func (s *store) refuse(p *broker.Publish, err error) {
	s.lane.Refused(p.Tag, err)
	s.dedups.Refused(p, err, s.lane)
}

// Remembers says whether a publish would repeat another.
func (s *store) Remembers(p broker.Publish) bool { return s.dedups.Remembers(&p) }

// received takes what has arrived on a topic's channel, from the hub's goroutine.
func (s *store) received(topic, payload string) {
	size := int64(len(payload))
	if s.arriving.Add(size) > maxArriving {
		s.arriving.Add(-size)
		s.poster.Post(func() {
			for _, p := range s.topics[topic] {
				s.dropped(p)
			}
		})
		return
	}
	m, meta, err := decode(payload)
	s.poster.Post(func() {
		s.arriving.Add(-size)
		if err != nil {
			s.b.log.Error("a message could not be given an id", "topic", topic, "error", err)
			return
		}
		for _, p := range s.topics[topic] {
			s.arrive(p, m, meta)
		}
	})
}

func (s *store) arrive(p *place, m *broker.Message, meta broker.Meta) {
	if !p.taken || p.live >= maxLive {
		s.dropped(p)
		return
	}
	s.ledger.Count(p.queue, ledger.Published, 1)
	meta.Queue = p.queue
	v := &live{message: m, meta: meta, place: p}
	v.entry = broker.Entry{Key: s.lane.Key(), ID: m.ID, Queue: &p.ghost, Size: uint32(len(m.Body)), Priority: m.Priority, Group: ledger.GroupOf(m.Group)}
	v.state()
	s.live[v.entry.Key] = v
	p.live++
	s.lane.Arrived(&v.entry, m)
}

// dropped counts a message that nobody was there for.
func (s *store) dropped(p *place) {
	s.ledger.Count(p.queue, ledger.Published, 1)
	s.lose(p)
}

func (s *store) lose(p *place) {
	s.ledger.Count(p.queue, ledger.Discarded, 1)
	s.ledger.Count(p.queue, ledger.Dropped, 1)
	s.b.drops.told(p.queue)
}

// state has the entry say what its meta does.
func (v *live) state() {
	e, m := &v.entry, &v.meta
	e.Attempt, e.Vanished, e.Incomplete, e.Due, e.FirstFailure = m.Attempt, m.Vanished, m.Incomplete, m.Due, m.FirstFailure
}

// place is that of a queue, made when it is first used.
func (s *store) place(queue string) *place {
	p := s.places[queue]
	if p == nil {
		p = &place{queue: queue, ghost: ledger.Queue{Name: queue}}
		s.places[queue] = p
	}
	return p
}

// Demand says whether somebody takes a subscriber's messages.
func (s *store) Demand(queue string, d broker.Demand) {
	if d.Window > 0 && scope.SubscribedTopic(queue) != "" {
		s.place(queue).taken = true
	} else if p := s.places[queue]; p != nil {
		p.taken = false
		s.tidy(p)
	}
}

// Rest takes nothing more for the queue.
func (s *store) Rest(queue string, done func(still bool)) {
	s.Demand(queue, broker.Demand{})
	s.poster.Post(func() { done(true) })
}

// Bind has the queue receive the topic.
func (s *store) Bind(queue, topic string, done func()) {
	p := s.place(queue)
	p.topic = topic
	if s.topics[topic] == nil {
		s.topics[topic] = make(map[string]*place)
	}
	s.topics[topic][queue] = p
	s.b.hub.subscribe(s, topic, func() { s.poster.Post(done) })
}

// Unbind ends that.
func (s *store) Unbind(queue, topic string) {
	p := s.topics[topic][queue]
	if p == nil {
		return
	}
	p.topic = ""
	delete(s.topics[topic], queue)
	if len(s.topics[topic]) == 0 {
		delete(s.topics, topic)
		s.b.hub.unsubscribe(s, topic)
	}
	s.tidy(p)
}

// tidy forgets a place that is not used any more.
func (s *store) tidy(p *place) {
	if p.topic == "" && !p.taken && p.live == 0 {
		delete(s.places, p.queue)
	}
}

// Forget forgets a queue with what is not handled.
func (s *store) Forget(queue string) {
	p := s.places[queue]
	if p == nil {
		return
	}
	for _, v := range s.live {
		if v.place == p {
			s.remove(v)
		}
	}
	p.taken = false
	s.Unbind(queue, p.topic)
	delete(s.places, queue)
}

// Queues are those of this lane.
func (s *store) Queues() iter.Seq2[string, []int64] {
	return func(yield func(string, []int64) bool) {
		for queue := range s.places {
			if !yield(queue, nil) {
				return
			}
		}
	}
}

// Has says whether it is one of them.
func (s *store) Has(queue string) bool { return s.places[queue] != nil }

// Comes is 0: nothing waits on Redis.
func (s *store) Comes(string) int { return 0 }

// Live is how many of the queue's messages are not handled.
func (s *store) Live(queue string) int {
	if p := s.places[queue]; p != nil {
		return p.live
	}
	return 0
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

// Message is the entry's message.
func (s *store) Message(e *broker.Entry) *broker.Message {
	if v := s.live[e.Key]; v != nil {
		return v.message
	}
	return nil
}

// Load has nothing to read: all is in memory.
func (s *store) Load(entries []*broker.Entry) {
	s.poster.Post(func() {
		for _, e := range entries {
			s.lane.Read(e, s.Message(e), nil)
		}
	})
}

// Meta is what is known of the entry.
func (s *store) Meta(e *broker.Entry) broker.Meta {
	if v := s.live[e.Key]; v != nil {
		return v.meta
	}
	return broker.Meta{Queue: e.Queue.Name, Attempt: e.Attempt}
}

// remove takes an entry out; false: it is out.
func (s *store) remove(v *live) bool {
	if v == nil || s.live[v.entry.Key] != v {
		return false
	}
	delete(s.live, v.entry.Key)
	v.place.live--
	s.tidy(v.place)
	return true
}

// Settle ends a message.
func (s *store) Settle(e *broker.Entry, how broker.Counter) {
	if v := s.live[e.Key]; s.remove(v) {
		s.ledger.Count(v.place.queue, how, 1)
	}
}

// SettleNow is Settle, and tells the lane.
func (s *store) SettleNow(e *broker.Entry, how broker.Counter) {
	s.Settle(e, how)
	s.poster.Post(func() { s.lane.Settled(e) })
}

// Return keeps the entry, in memory as it was.
func (s *store) Return(e *broker.Entry, meta broker.Meta) bool {
	v := s.live[e.Key]
	if v == nil {
		return false
	}
	v.meta = meta
	s.poster.Post(func() {
		if s.live[e.Key] == v {
			v.state()
			s.lane.Returned(e)
		}
	})
	return true
}

// Retry and DeadLetter are nothing that Redis has.
func (s *store) Retry(*broker.Entry, broker.Meta) bool { return false }

// DeadLetter is not there either.
func (s *store) DeadLetter(*broker.Entry, broker.Meta) bool { return false }

// Leave gives the entry to whom keep gives it.
func (s *store) Leave(e *broker.Entry, keep func(kept func()) bool) bool {
	v := s.live[e.Key]
	return v != nil && keep(func() {
		if s.remove(v) {
			e.Decided = true
			s.lane.Left(e)
			s.lane.Handed(e)
		}
	})
}

// GiveBack drops an entry that nobody has: there is no queue for it to go back to.
func (s *store) GiveBack(e *broker.Entry) {
	if v := s.live[e.Key]; s.remove(v) {
		s.lose(v.place)
	}
}
