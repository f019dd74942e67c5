package router

import (
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// queue is one queue of a lane, from the first message or consumer on.
type queue struct {
	name   string
	lane   *lane
	ledger *broker.Queue // nil before the first message
	store  broker.Store  // where publishes go; of an entry see lane.storeOf

	ready lineup
	// groups are those of a FIFO queue that hold something; nil in another. Of
	// each at most one message is in ready.
	groups map[uint64]*group
	// held are entries of before this owner: withheld until their workers have
	// said which of them they run.
	held readyList

	consumers []*consumer
	next      int              // whose turn it is
	filters   []*filter.Filter // what they want of a topic, see refilter
	lastDue   int64            // of what it delays, see firstDue
	aside     []*sideline      // what was ready and waits for those who want it
	jobs      *jobs            // of a named queue; nil in another
	policy    *policy          // shared by the many that nobody asked anything else of

	inflight    int   // deliveries in workers' hands
	judging     int   // failed ones whose verdict is awaited
	moving      int64 // on their way to another ledger
	staged      int64 // publishes being committed, and their bytes
	stagedBytes int64
	before      int64           // of these on their way to where publishes went before
	transit     *transit        // to where it is now; nil: nothing is elsewhere that comes before
	parked      []*broker.Entry // in the mesh, and waiting for that

	reading int // entries whose bodies are being read
	read    int // ready entries whose bodies were read ahead

	sighted *sighting // of a queue with a limit, on a broker

	counts *counts        // of this turn, if there are any
	at     *tracing.Place // made when it is first asked for

	// Of a queue that receives a topic:
	topic   string
	kind    scope.Kind
	bound   *binding // nil: it does not receive it
	ended   bool     // by an operator
	leaving bool     // to be forgotten

	head      ledger.Key // the next message when somebody last looked
	headSince int64      // Service.clock

	listed      bool // in the lane's round
	nextInRound *queue
}

func newQueue(name string, l *lane) *queue {
	q := &queue{name: name, lane: l, policy: &defaultPolicy}
	if n, ok := scope.SubscriberOf(name); ok {
		q.topic, q.kind = n.Topic, n.Kind
	}
	if named, ok := scope.NamedQueue(name); ok {
		q.jobs = &jobs{name: named, lines: make(map[protocol.FunctionSpec]*line)}
	}
	q.store = l.storeFor(q)
	l.resumeMove(q)
	return q
}

// pick is the consumer whose turn it is, nil if none has room.
func (q *queue) pick(now int64) *consumer {
	return q.pickOf(now, func(*consumer) bool { return true })
}

// pickOf is pick among those that f chooses.
func (q *queue) pickOf(now int64, f func(*consumer) bool) *consumer {
	for range q.consumers {
		if q.next >= len(q.consumers) {
			q.next = 0
		}
		c := q.consumers[q.next]
		q.next++
		if c.free(now) && f(c) {
			return c
		}
	}
	return nil
}

// attach makes c the queue's consumer, or takes its changes over.
func (q *queue) attach(c *consumer) {
	newest := true
	known := false
	for _, other := range q.consumers {
		known = known || other == c
		newest = newest && !other.since.After(c.since)
	}
	if !known {
		q.consumers = append(q.consumers, c)
	}
	q.refilter()
	if newest {
		q.setPolicy(c.policy())
	}
}

// detach removes c; what it holds stays with it.
func (q *queue) detach(c *consumer) {
	c.gone = true
	kept := q.consumers[:0]
	for _, other := range q.consumers {
		if other != c {
			kept = append(kept, other)
		}
	}
	clear(q.consumers[len(kept):])
	q.consumers = kept
	q.refilter()
}

// window is how many messages its consumers take at once.
func (q *queue) window() int {
	n := 0
	if q.jobs != nil {
		if d := q.jobs.definition; d != nil && len(q.lane.serving) > 0 {
			n = d.Concurrency
		}
		return n
	}
	for _, c := range q.consumers {
		if !c.Draining {
			n += c.Concurrency
		}
	}
	return n
}

// aheadMost is how many bodies are read before their turn: some for each that the
// consumers take at once.
func (q *queue) aheadMost() int { return min(readEntries, 4*q.window()+4) }

// live is what the queue's owner stores of it.
func (q *queue) live() (messages, bytes int64) {
	if q.ledger == nil {
		return q.staged, q.stagedBytes
	}
	return q.ledger.Live + q.staged, q.ledger.Bytes + q.stagedBytes
}

// info is the queue for people.
func (q *queue) info() protocol.QueueInfo {
	i := protocol.QueueInfo{
		Queue: q.name, InFlight: int64(q.inflight), Moving: q.moving, Consumers: len(q.consumers),
	}
	if q.jobs != nil {
		i.Named, i.Unserved = q.jobs.name, q.jobs.unserved()
	}
	if q.groups != nil {
		i.Type, i.Groups, i.HeldGroups, i.BlockedGroups = q.groupCounts()
	}
	if q.bound != nil {
		i.DetachedAt, i.Receiving = q.bound.DetachedAt, !q.bound.Ended
		if i.Receiving {
			i.ReceivesUntil = q.bound.Until
		}
	}
	far := int64(q.far())
	i.Ready = max(0, far-i.InFlight)
	if q.lane != nil && q.lane.isFar(q.name) {
		i.Counters = q.lane.countedFar(q.name)
	} else if q.ledger != nil {
		i.Counters = ledger.Shown(&q.ledger.Counters)
	}
	if q.ledger != nil {
		i.Ready = max(0, q.ledger.Live+far-q.moving-i.InFlight)
		i.Bytes = q.ledger.Bytes
	}
	return i
}

// counts are numbers by counter.
type counts [ledger.NumCounters]uint64
