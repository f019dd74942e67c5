package router

import (
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/services/router/broker"
)

const (
	turnDeliveries = 2048                   // in one turn, so that events are not kept waiting
	manyLimits     = 16                     // different time limits, of which unused ones are kept
	stall          = 100 * time.Millisecond // after the connection refused a delivery
	stallTold      = time.Minute            // between two words about that

	readEntries = 256     // bodies read at once for a queue, at most
	readBytes   = 1 << 20 // and their bytes
	lookAhead   = 4096    // entries looked at for them
	aheadBytes  = 8 << 20 // read ahead in a lane, beyond the one that is next
)

// wake puts the queue into the round if it may have something to dispatch.
func (l *lane) wake(q *queue) {
	if q.listed || q.deliverable() == 0 || len(q.consumers) == 0 && q.jobs == nil {
		return
	}
	q.listed = true
	if l.roundLast != nil {
		l.roundLast.nextInRound = q
	} else {
		l.roundFirst = q
	}
	l.roundLast = q
}

// nextQueue takes the first queue out of the round.
func (l *lane) nextQueue() *queue {
	q := l.roundFirst
	if q == nil {
		return nil
	}
	l.roundFirst = q.nextInRound
	if l.roundFirst == nil {
		l.roundLast = nil
	}
	q.nextInRound, q.listed = nil, false
	return q
}

// dispatch delivers one message of each queue in turn, so that none waits for
// another's backlog. It says whether there is more to do at once.
func (l *lane) dispatch() bool {
	if l.draining || l.now < l.stalledUntil || l.roundFirst == nil {
		return false
	}
	if !l.s.keeper.Holds(l.slot.name) { // another may have the lane, and deliver the same
		l.stalledUntil = l.now + int64(stall)
		return false
	}
	defer l.frames.flush(l)
	for range turnDeliveries {
		q := l.nextQueue()
		if q == nil {
			return false
		}
		if l.deliverNext(q) {
			l.wake(q)
		}
		if l.now < l.stalledUntil {
			return false
		}
	}
	return l.roundFirst != nil
}

// deliverNext delivers the queue's next message, if there is one, it is in
// memory, and a consumer has room.
func (l *lane) deliverNext(q *queue) bool {
	if q.judging >= l.verdicts.most() {
		return false
	}
	if q.jobs != nil {
		return l.deliverJob(q)
	}
	if len(q.filters) > 0 {
		return l.deliverWanted(q)
	}
	e := q.ready.peek()
	if e == nil {
		return false
	}
	c := q.pick(l.now)
	if c == nil {
		return false
	}
	m := l.body(q, e)
	if m == nil {
		return false
	}
	l.takeNext(q, e)
	l.deliver(l.begin(e, q, c), m)
	return true
}

// takeNext takes e, which is the queue's next, out of what is ready.
func (l *lane) takeNext(q *queue, e *broker.Entry) {
	q.ready.pop()
	l.takenAhead(q, e)
}

// takenAhead reads more of the queue if e was read before its turn.
func (l *lane) takenAhead(q *queue, e *broker.Entry) {
	if _, ahead := e.Slot.(*broker.Message); ahead {
		l.used(q, e)
		if q.read < q.aheadMost()/4 && q.reading == 0 {
			l.readAhead(q)
		}
	}
}

// body is the entry's message; nil when it has to be read first.
func (l *lane) body(q *queue, e *broker.Entry) *broker.Message {
	switch s := e.Slot.(type) {
	case *broker.Message:
		return s
	case place:
		return nil
	}
	if m := l.storeOf(e).Message(e); m != nil {
		return m
	}
	l.readAhead(q)
	return nil
}

// readAhead reads the bodies of the entries that come next, as far as they are
// in nobody's memory. Those in memory may lie between them.
func (l *lane) readAhead(q *queue) {
	var batch []*broker.Entry
	most, room := q.aheadMost(), min(readBytes, aheadBytes-l.ahead)
	looked := 0
	q.ahead(func(e *broker.Entry) bool {
		looked++
		if e.Slot != nil || l.storeOf(e).Message(e) != nil {
			return looked < lookAhead
		}
		room -= int(e.Size)
		if len(batch) > 0 && room < 0 {
			return false
		}
		e.Slot = reading
		l.ahead += int(e.Size)
		batch = append(batch, e)
		return len(batch) < most
	})
	if len(batch) == 0 {
		return
	}
	q.reading += len(batch)
	l.store.Load(batch)
}

// Read takes a body that was read. A damaged one stays where it is: it is
// the operator's to decide, and the others go on.
func (l *lane) Read(e *broker.Entry, m *broker.Message, err error) {
	q := l.queueOf(e)
	q.reading--
	defer l.wake(q)
	if e.Slot != reading {
		return // settled or judged meanwhile
	}
	if m == nil {
		l.ahead -= int(e.Size)
	}
	switch {
	case err != nil:
		l.about(e).Error("a stored message cannot be read and is not delivered", "error", err)
		q.remove(e)
		e.Slot = unreadable
		q.stuck(e)
	case m == nil:
		q.remove(e)
		q.end(e)
		e.Slot = nil
	default:
		q.read++
		e.Slot = m
	}
}

// used takes e, which was read ahead, out of that account.
func (l *lane) used(q *queue, e *broker.Entry) {
	q.read--
	l.ahead -= int(e.Size)
}

// begin opens a delivery of e to c.
func (l *lane) begin(e *broker.Entry, q *queue, c *consumer) *delivery {
	d := l.newDelivery(e, q)
	d.c, d.started = c, l.now
	c.inflight++
	c.worker.held.Add(1)
	q.inflight++
	l.held.Add(1)
	limit := l.deadlines[c.timeout]
	if limit == nil {
		limit = &deadlines{limit: c.timeout}
		l.deadlines[c.timeout] = limit
	}
	limit.add(d)
	return d
}

func (l *lane) newDelivery(e *broker.Entry, q *queue) *delivery {
	d := l.spare.take()
	d.e, d.q = e, q
	e.Slot = d
	q.take(e)
	return d
}

// release ends d's time in its worker's hands. Everybody who might use the
// room is woken.
func (l *lane) release(d *delivery) {
	l.stopClock(d)
	d.c.inflight--
	d.c.worker.held.Add(-1)
	d.q.inflight--
	l.held.Add(-1)
	l.wake(d.q)
}

// stopClock ends d's time limit.
func (l *lane) stopClock(d *delivery) {
	limit := d.due
	d.remove()
	if limit.n == 0 && len(l.deadlines) > manyLimits {
		delete(l.deadlines, limit.limit)
	}
}

// putBack returns a delivery that was not run, or not to its end, to its
// place in the queue. Nothing is recorded: it cost nothing.
func (l *lane) putBack(d *delivery) {
	e, q := d.e, d.q
	l.release(d)
	l.free(e)
	q.add(e)
}

// outgoing is what deliveries are sent with; the connection has copied it when
// publishing returns.
type outgoing struct {
	msg    nats.Msg
	header nats.Header
	values [ownHeaders]string
	reply  []byte
}

// The mesh's own headers of a delivery, by their places.
const (
	ownAttempt = iota
	ownMessageID
	ownTimeout
	ownMaxRetries
	ownEpoch
	ownGeneration
	ownGroup
	ownPriority
	ownSpan
	ownTraceparent
	ownHeaders
)

// own sets one of the mesh's headers.
func (o *outgoing) own(i int, name, value string) {
	o.values[i] = value
	o.header[name] = o.values[i : i+1 : i+1]
}

// deliver sends d's message to its worker.
func (l *lane) deliver(d *delivery, m *broker.Message) {
	if d.c.frames != "" {
		l.frames.add(l, d, m)
		return
	}
	l.deliverAlone(d, m)
}

// deliverAlone sends it as a message of its own.
func (l *lane) deliverAlone(d *delivery, m *broker.Message) {
	o, e, c := &l.out, d.e, d.c
	clear(o.header)
	maps.Copy(o.header, m.Headers)
	o.own(ownAttempt, protocol.HeaderAttempt, strconv.FormatUint(uint64(e.Attempt), 10))
	o.own(ownMessageID, protocol.HeaderMessageID, e.ID.String())
	o.own(ownTimeout, protocol.HeaderTimeout, c.timeoutText)
	o.own(ownMaxRetries, protocol.HeaderMaxRetries, c.retriesText)
	o.own(ownEpoch, protocol.HeaderEpoch, l.epoch)
	if e.Generation > 0 {
		o.own(ownGeneration, protocol.HeaderGeneration, strconv.FormatUint(uint64(e.Generation), 10))
	}
	if m.Group != "" {
		o.own(ownGroup, protocol.HeaderGroup, m.Group)
	}
	if m.Priority > 0 {
		o.own(ownPriority, protocol.HeaderPriority, strconv.Itoa(int(m.Priority)))
	}
	if span := l.trace(d, m); span != "" {
		o.own(ownSpan, protocol.HeaderSpan, span)
	} else if l.declined(m) {
		o.own(ownTraceparent, protocol.HeaderTraceparent, tracing.DeclinedParent)
	}
	o.reply = l.seal.append(append(o.reply[:0], l.reply...), l.tokenOf(e))
	o.msg = nats.Msg{Subject: c.Deliver, Reply: string(o.reply), Header: o.header, Data: m.Body}
	err := l.s.bulk.PublishMsg(&o.msg)
	if err == nil {
		return // counted when it ends: nobody may be there to take it
	}
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadHeaderMsg) {
		l.unsendable(d, err)
		return
	}
	if l.now >= l.stallToldAt {
		l.stallToldAt = l.now + int64(stallTold)
		l.s.log.Warn("a delivery could not be sent and is tried again until it can", "queue", d.q.name, "subscription", c.ID, "error", err)
	}
	l.stalledUntil = l.now + int64(stall)
	d.forgetSpan()
	l.putBack(d)
}

// unsendable gives a delivery up whose message was published when NATS took
// more: it must not stop the others.
func (l *lane) unsendable(d *delivery, err error) {
	l.about(d.e).Warn("a message cannot be sent to a worker, and is given up", "error", err)
	l.release(d)
	l.judge(d, protocol.Rejected, "the message cannot be sent to a worker: "+err.Error())
}

// pause keeps e from being delivered before it is due.
func (l *lane) pause(e *broker.Entry) {
	e.Slot = paused
	l.pauses.add(e)
}

// resume ends the rests and pauses whose time has come.
func (l *lane) resume() {
	for e := l.pauses.first(); e != nil && e.Due <= l.wall; e = l.pauses.first() {
		l.pauses.take()
		e.Slot = nil
		l.waited(e)
		l.queueOf(e).add(e)
	}
	kept := l.resting[:0]
	for _, c := range l.resting {
		l.wake(c.q)
		if l.rested(c) > l.now {
			kept = append(kept, c)
		}
	}
	clear(l.resting[len(kept):])
	l.resting = kept
}

// rested is when something about a resting consumer changes next.
func (l *lane) rested(c *consumer) int64 {
	if l.now < c.quietUntil {
		return c.quietUntil
	}
	return c.provenAt
}

// rest gives c a rest.
func (l *lane) rest(c *consumer) {
	if l.now >= c.provenAt {
		l.resting = append(l.resting, c)
	}
	c.rest(l.now)
}
