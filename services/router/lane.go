package router

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/builtin"
)

// lane is the owner of one of the router's ledgers: it dispatches the queues
// whose names hash to it. All of it happens in the ledger's goroutine, so there
// are no locks; everybody else sends events.
type lane struct {
	s     *Service
	slot  *slot
	reply string // what its deliveries' reply subjects begin with

	ledger  *ledger.Ledger
	store   *builtin.Store
	placed  *placement
	remotes []*remote
	moves   moves
	arrived ledger.Key // of the last entry from a broker
	// divertedUntil is until when (ns since the epoch) what was published in a
	// group on a broker follows a dead letter.
	divertedUntil map[groupName]int64
	seal          seal
	epoch         string

	now  int64 // Service.clock: monotonic, for time limits
	wall int64 // ns since the epoch, for due times

	queues    map[string]*queue
	consumers map[*worker]map[string]*consumer // by subscription id
	named     map[string]*queue                // of the queues, those with jobs
	servers   map[*worker]server               // who takes jobs
	serving   map[protocol.FunctionSpec]map[*worker]*protocol.ServedFunction
	resting   []*consumer
	deadlines map[int64]*deadlines
	// handedBack counts how often deliveries came back cancelled.
	handedBack map[ledger.Key]uint16
	topics     map[string]*topic
	everyone   bool            // that the registry knows was told, see toldAll
	document   filter.Document // what filters are asked about now
	copies     []broker.Copy   // scratch of address
	bindings   bindings
	strays     []*broker.Entry // of listeners that are gone, to be given up
	counted    []*queue

	roundFirst, roundLast *queue // queues that may have something to dispatch
	stalledUntil          int64
	stallToldAt           int64 // that the connection refuses deliveries is not said again before
	draining              bool

	standstill standstill
	pauses     entryHeap // entries that are not due, by due time
	verdicts   verdicts
	schedule   schedule
	closed     closing.Closed
	tombEnd    time.Time // when the next of them ends; zero: none does
	takeover   takeover
	audits     audits
	late       late
	strangers  strangers
	blocks     blocks
	// diversionsEnded: there is nothing left of the last owner's.
	diversionsEnded bool

	ahead  int          // bytes of the bodies read before their turn
	queued atomic.Int64 // bytes of publishes sent to the lane and not staged yet

	spare       spares[delivery]
	spareCounts spares[counts]
	out         outgoing
	frames      frames
	answer      []byte
	held        atomic.Int64 // deliveries in workers' hands, for others to read
	open        atomic.Int64 // those that ended and are not recorded yet
	bytes       atomic.Int64 // live, likewise
	entries     atomic.Int64

	stagedEntries, stagedBytes int64 // being committed
}

// event is what a lane is sent.
type event interface{ apply(l *lane) }

// call is an event that is rare enough for a closure.
type call func(l *lane)

func (c call) apply(l *lane) { c(l) }

func newLane(s *Service, at *slot) *lane {
	return &lane{
		s: s, slot: at, draining: s.draining.Load(),
		reply:      protocol.SubjectOutcome + at.name + ".",
		queues:     make(map[string]*queue),
		consumers:  make(map[*worker]map[string]*consumer),
		named:      make(map[string]*queue),
		servers:    make(map[*worker]server),
		serving:    make(map[protocol.FunctionSpec]map[*worker]*protocol.ServedFunction),
		deadlines:  make(map[int64]*deadlines),
		handedBack: make(map[ledger.Key]uint16),
		topics:     make(map[string]*topic),
		pauses:     entryHeap{byDue: true},
		out:        outgoing{header: make(nats.Header, 16)},
	}
}

// Opened takes over what the ledger holds.
func (l *lane) Opened(led *ledger.Ledger) {
	l.ledger, l.store = led, l.s.builtin.Open(led, l)
	l.arrived = broker.RemoteKey | ledger.Key(led.Epoch()&(1<<(63-keyEpoch)-1))<<keyEpoch
	l.placed = l.s.placed()
	l.attachRemotes()
	l.seal = newSeal(led.Secret())
	l.epoch = strconv.FormatUint(led.Epoch(), 10)
	l.setTime(time.Now())
	l.blocks.open(l)
	l.openBindings()
	for e := range led.Entries() {
		l.replayed(e)
	}
	l.closed.Open(led, l)
	if len(l.remotes) > 0 { // where a queue is to be may have changed while nobody had the lane
		for _, q := range l.queues {
			l.move(q)
		}
	}
	l.takeover.begin(l)
}

// replayed puts an entry of an earlier owner in its place. Only one whose due
// time has come can be in a worker's hands.
func (l *lane) replayed(e *broker.Entry) {
	q := l.queueOf(e)
	l.blocks.saw(e, !e.Decided, e.Decided)
	switch {
	case e.Decided:
		q.moving++
	case q.over():
		l.stray(e, q)
	case e.Due > l.wall:
		l.later(e)
	default:
		e.Slot = held
		q.held.push(e)
	}
}

// Handle takes events in order.
func (l *lane) Handle(events []event) {
	l.setTime(time.Now())
	for _, e := range events {
		e.apply(l)
	}
}

// Committed passes the ledger's report to the store, which tells the lane in
// the terms all brokers share.
func (l *lane) Committed(c *ledger.Commit) {
	if _, ok := c.Tag.(bound); ok {
		l.bindings.noted()
		return
	}
	if a, ok := c.Tag.(*adoption); ok {
		a.committed(l, c)
		return
	}
	if noted, ok := c.Tag.(broker.Noted); ok {
		noted.Noted()
		return
	}
	if !l.closed.Committed(c.Tag) {
		l.store.Committed(c)
	}
}

// Loaded passes what was read on to the store in the same way.
func (l *lane) Loaded(e *ledger.Entry, m *ledger.Message, _ ledger.Meta, err error) {
	l.store.Loaded(e, m, err)
}

// Incoming accepts what retry and dlq hand over: a quota stops publishes, never
// what was accepted once.
func (l *lane) Incoming(*ledger.Message, *ledger.Meta) error { return nil }

// Tick does what time and the turn's events have made due.
func (l *lane) Tick(now time.Time) time.Time {
	l.setTime(now)
	l.standstill.look(l.now)
	l.expire()
	l.resume()
	l.schedule.tick(l)
	l.tombEnd = l.closed.Tick(now)
	l.takeover.tick(l)
	l.bindings.tick(l)
	l.strayAgain()
	l.audits.tick(l)
	l.late.tick(l)
	l.strangers.tick(l)
	l.blocks.tick(l)
	l.verdicts.tick(l)
	l.moves.tick(l)
	more := l.dispatch()
	l.flushCounts()
	l.publishGauges()
	pause := int64(0)
	if !more {
		pause = l.nextTick()
	}
	l.standstill.planned = l.now + pause
	return now.Add(time.Duration(pause))
}

func (l *lane) setTime(now time.Time) { l.now, l.wall = l.s.clock(now), now.UnixNano() }

// idle is how long a lane sleeps when nothing is due.
const idle = 10 * time.Second

// nextTick is how long from now the next thing is due.
func (l *lane) nextTick() int64 {
	next := l.now + int64(idle)
	for _, d := range l.deadlines {
		if d.first != nil {
			next = min(next, max(d.first.started+d.limit, l.standstill.until))
		}
	}
	for _, c := range l.resting {
		next = min(next, l.rested(c))
	}
	if e := l.pauses.first(); e != nil {
		next = min(next, l.now+e.Due-l.wall)
	}
	if l.stalledUntil > l.now {
		next = min(next, l.stalledUntil)
	}
	next = min(next, l.closedNext(), l.bindings.next(l), l.takeover.next(l), l.audits.next(l), l.verdicts.next(l))
	next = min(next, l.late.next(l), l.blocks.next(l), l.strangers.next(l), l.moves.next(l))
	return max(0, next-l.now)
}

// Closed ends the lane. Publishers whose records were certainly not written
// are told so; of those being written nobody knows.
func (l *lane) Closed(_ error, tags []any) {
	for _, tag := range tags {
		if p, ok := tag.(*publication); ok {
			p.refuse(l.s, errMoving)
		}
	}
	l.bindings.closed()
	l.closeRemotes()
	for _, d := range l.deadlines {
		for x := d.first; x != nil; x = x.next {
			x.endSpan(endMoved, "")
			if x.c != nil {
				x.c.worker.held.Add(-1)
			}
		}
	}
	for _, d := range l.late.deliveries {
		d.endSpan(endMoved, "")
		d.c.worker.held.Add(-1)
	}
	l.held.Store(0)
	l.bytes.Store(0)
	l.entries.Store(0)
}

// publishGauges shows others the lane's size.
func (l *lane) publishGauges() {
	messages, bytes := l.ledger.Live()
	l.entries.Store(messages + l.stagedEntries)
	l.bytes.Store(bytes + l.stagedBytes)
}

// queueOf is the queue of an entry.
func (l *lane) queueOf(e *broker.Entry) *queue {
	if q, ok := e.Queue.Slot.(*queue); ok && q.lane != nil {
		return q
	}
	q := l.queue(e.Queue.Name)
	if !isRemote(e) {
		q.ledger = e.Queue
	}
	e.Queue.Slot = q
	return q
}

// queueAt is the queue a route leads to, which the route remembers.
func (l *lane) queueAt(r *route) *queue {
	if r.known == nil || r.known.lane != l {
		r.known = l.queue(r.queue)
	}
	return r.known
}

// queue is the queue of that name, made when it is first asked for.
func (l *lane) queue(name string) *queue {
	q := l.queues[name]
	if q == nil {
		q = newQueue(name, l)
		q.ledger = l.ledger.Queue(name)
		if q.ledger != nil {
			q.ledger.Slot = q
		}
		l.queues[name] = q
		if q.jobs != nil {
			l.named[name] = q
		}
		l.closed.Meet(name)
	}
	return q
}

// count counts for a queue; the turn's counts go to the ledger together.
func (l *lane) count(q *queue, c ledger.Counter) {
	if q.counts == nil {
		q.counts = l.spareCounts.take()
		l.counted = append(l.counted, q)
	}
	q.counts[c]++
}

// countWith counts for the queue of an entry about which a record was staged
// just now: a restart has both or neither.
func (l *lane) countWith(e *broker.Entry, c ledger.Counter) { l.ledger.CountWith(e.Queue, c) }

func (l *lane) flushCounts() {
	for _, q := range l.counted {
		l.ledger.CountAll(q.name, (*[ledger.NumCounters]uint64)(q.counts))
		*q.counts = counts{}
		l.spareCounts = append(l.spareCounts, q.counts)
		q.counts = nil
	}
	clear(l.counted)
	l.counted = l.counted[:0]
}

// Post runs f in the lane's goroutine.
func (l *lane) Post(f func()) bool { return l.slot.send(call(func(*lane) { f() })) }

// Arrived makes a new entry deliverable.
func (l *lane) Arrived(e *broker.Entry, m *broker.Message) {
	q := l.queueOf(e)
	if isRemote(e) {
		if l.wasAdopted(e) {
			return
		}
		l.received(q, e, m)
	}
	l.blocks.saw(e, true, false)
	switch {
	case l.closed.Arrived(q.name):
		l.drop(e)
		return
	case q.over():
		l.stray(e, q)
		return
	case q.jobs != nil && isRemote(e) && functionOf(m).ID == "":
		l.nameless(e)
		return
	case l.follows(q, e, m):
		l.followLetter([]*broker.Entry{e}, "a message before it in its group was dead-lettered")
		return
	case e.Due > l.wall, l.overtakes(e):
		l.later(e)
		return
	}
	q.add(e)
}

// Returned makes an entry deliverable again once its pause is over.
func (l *lane) Returned(e *broker.Entry) {
	q := l.queueOf(e)
	l.free(e)
	switch {
	case l.closed.Purged(q.name):
		l.drop(e)
		return
	case q.over():
		l.stray(e, q)
		return
	case e.Due > l.wall:
		l.pause(e)
		return
	}
	q.add(e)
}

// Settled lets what waited for the end of e go on.
func (l *lane) Settled(e *broker.Entry) {
	l.queueOf(e).end(e)
	l.blocks.handled(l, e)
}

// Left forgets an entry that is on its way to another ledger.
func (l *lane) Left(e *broker.Entry) {
	q := l.queueOf(e)
	l.free(e)
	delete(l.handedBack, e.Key)
	q.moving++
	l.blocks.saw(e, false, true)
	q.end(e)
	l.wake(q)
}

// Handed counts an entry's arrival there.
func (l *lane) Handed(e *broker.Entry) {
	l.queueOf(e).moving--
	l.blocks.saw(e, false, false)
}

// Lost gives up a delivery whose settlement the broker would not take.
func (l *lane) Lost(e *broker.Entry) {
	d, ok := e.Slot.(*delivery)
	switch {
	case !ok:
		l.unplace(e)
		l.queueOf(e).end(e)
	case d.stage == running:
		l.release(d)
		l.count(d.q, ledger.Superseded)
		q := d.q
		l.free(e)
		q.end(e)
	case d.stage == recording: // what follows is known to its store, for when it arrives again
		q := d.q
		l.free(e)
		q.end(e)
	default: // its verdict will find nothing to act on
	}
}

// Ended implements broker.Lane.
func (l *lane) Ended(e *broker.Entry) bool {
	d, ok := e.Slot.(*delivery)
	return ok && (d.stage == judged || d.stage == recording)
}

// Leaves implements broker.Lane. In order what comes behind it waits for its end.
func (l *lane) Leaves(e *broker.Entry) {
	q := l.queueOf(e)
	l.blocks.saw(e, true, false)
	q.take(e)
	e.Slot = settled
}

// free ends the entry's delivery, if it has one.
func (l *lane) free(e *broker.Entry) {
	if d, ok := e.Slot.(*delivery); ok {
		if d.stage != running {
			l.open.Add(-1)
		}
		d.endSpan(endDropped, "")
		*d = delivery{}
		l.spare = append(l.spare, d)
	}
	e.Slot = nil
}

// spares are values that were used and can be used again.
type spares[T any] []*T

// take is a value that is zero.
func (s *spares[T]) take() *T {
	n := len(*s)
	if n == 0 {
		return new(T)
	}
	v := (*s)[n-1]
	*s = (*s)[:n-1]
	return v
}
