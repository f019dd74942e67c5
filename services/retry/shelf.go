package retry

import (
	"time"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

const (
	// releaseAtOnce bounds one turn, so that a flood of due messages does not
	// keep the ledger from committing those it has.
	releaseAtOnce = 4096
	// lookAgain bounds the sleep until the next due time: the timer runs on the
	// monotonic clock, which stands still while a machine is suspended and does
	// not follow when the wall clock is set.
	lookAgain = time.Second
	// What is due within readAhead is near: its body is in memory by the time
	// it is due, so that it leaves at the millisecond. Near is bounded; what
	// is due and not near leaves as well, and is read on its way.
	readAhead = 3 * time.Second
	maxNear   = 8192
	nearBytes = 16 << 20
)

// shelf is the owner of one ledger of waiting messages. It sends each to the
// lane of its queue when it is due, and never before: a clock that goes back
// only makes it wait.
type shelf struct {
	lanes  *books.Lanes
	tracer *tracing.Tracer // nil: no spans are made
	ledger *ledger.Ledger
	far    dueOrder
	near   dueOrder
	bytes  int64 // of near
	newest ledger.Key
	reader books.Reader
	closed closing.Closed
}

func newShelf(lanes *books.Lanes, tracer *tracing.Tracer) *shelf {
	return &shelf{lanes: lanes, tracer: tracer}
}

// onQueue is what the shelf keeps of a queue, in its Slot.
type onQueue struct{ moving int64 }

func queueSlot(q *ledger.Queue) *onQueue {
	if slot, ok := q.Slot.(*onQueue); ok {
		return slot
	}
	slot := &onQueue{}
	q.Slot = slot
	return slot
}

// Ledger is the shelf's.
func (s *shelf) Ledger() *ledger.Ledger { return s.ledger }

// Moving is the number of the queue's messages on their way to its lane.
func (s *shelf) Moving(q *ledger.Queue) int64 { return queueSlot(q).moving }

// Opened takes up what waited when the ledger was last closed.
func (s *shelf) Opened(l *ledger.Ledger) {
	s.ledger = l
	var waiting []*ledger.Entry
	for e := range l.Entries() {
		s.newest = max(s.newest, e.Key)
		if e.Decided {
			queueSlot(e.Queue).moving++
			continue
		}
		waiting = append(waiting, e)
	}
	s.far.fill(waiting)
	s.closed.Open(l, s)
}

// Handle runs what others ask.
func (s *shelf) Handle(calls []books.Call[*shelf]) {
	for _, call := range calls {
		call(s)
	}
}

// Incoming accepts everything: the budget and the quota are its sender's.
func (s *shelf) Incoming(*ledger.Message, *ledger.Meta) error { return nil }

// Committed follows what is now in the log, and answers the step that a record
// belonged to.
func (s *shelf) Committed(c *ledger.Commit) {
	switch c.Kind {
	case ledger.KindAccept:
		for _, e := range c.Entries {
			s.newest = max(s.newest, e.Key)
			if s.closed.Arrived(e.Queue.Name) {
				s.discard(e, nil)
				continue
			}
			s.far.add(e)
		}
	case ledger.KindDecide:
		for _, e := range c.Entries {
			queueSlot(e.Queue).moving++
		}
	case ledger.KindDone:
		for _, e := range c.Entries {
			queueSlot(e.Queue).moving--
		}
	default:
	}
	s.closed.Committed(c.Tag)
	if b, ok := c.Tag.(*books.Batch); ok {
		b.Committed()
	}
}

// Tick sends what is due, reads ahead, and says when to look again.
func (s *shelf) Tick(now time.Time) time.Time {
	next := s.sendDue(now)
	if end := s.closed.Tick(now); next.IsZero() || !end.IsZero() && end.Before(next) {
		return end
	}
	return next
}

// sendDue sends what is due, and says when something will be.
func (s *shelf) sendDue(now time.Time) time.Time {
	if !s.lanes.Known() {
		return time.Time{} // the host wakes its ledgers when it learns them
	}
	for range releaseAtOnce {
		e := s.takeDue(now.UnixNano())
		if e == nil {
			s.readAhead(now)
			return s.next(now)
		}
		s.release(e, nil)
	}
	return now
}

// takeDue takes the first message off the shelf if it is due.
func (s *shelf) takeDue(now int64) *ledger.Entry {
	near, far := s.near.first(), s.far.first()
	switch {
	case near != nil && near.Due <= now && (far == nil || before(near, far)):
		s.bytes -= int64(near.Size)
		return s.near.take()
	case far != nil && far.Due <= now:
		return s.far.take()
	}
	return nil
}

// release decides that a message goes to its lane, where it is ready at once.
// false: it has left already.
func (s *shelf) release(e *ledger.Entry, tag any) bool {
	return s.send(e, s.ledger.Meta(e), tag)
}

func (s *shelf) send(e *ledger.Entry, meta ledger.Meta, tag any) bool {
	meta.Due = 0
	s.waited(e)
	return s.ledger.Decide(e, s.lanes.Of(e.Queue.Name), meta, tag)
}

// readAhead brings what is due soon near.
func (s *shelf) readAhead(now time.Time) {
	var unread []*ledger.Entry
	soon := now.Add(readAhead).UnixNano()
	for e := s.far.first(); e != nil && e.Due <= soon && s.room(); e = s.far.first() {
		s.far.take()
		s.near.add(e)
		s.bytes += int64(e.Size)
		if s.ledger.Message(e) == nil {
			unread = append(unread, e)
		}
	}
	if len(unread) > 0 {
		s.ledger.Load(unread...)
	}
}

func (s *shelf) room() bool { return len(s.near) < maxNear && s.bytes < nearBytes }

// next is when there will be something to do.
func (s *shelf) next(now time.Time) time.Time {
	near, far := s.near.first(), s.far.first()
	if near == nil && far == nil {
		return time.Time{}
	}
	next := now.Add(lookAgain)
	if near != nil {
		next = earlier(next, time.Unix(0, near.Due))
	}
	if far != nil {
		due := time.Unix(0, far.Due)
		if s.room() {
			due = due.Add(-readAhead)
		}
		next = earlier(next, due)
	}
	return next
}

// late is for how long the message that is due first has been due.
func (s *shelf) late() time.Duration {
	due := time.Now().UnixNano()
	for _, e := range []*ledger.Entry{s.near.first(), s.far.first()} {
		if e != nil {
			due = min(due, e.Due)
		}
	}
	return time.Since(time.Unix(0, due)).Truncate(time.Millisecond)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Loaded gives a message to those who look at it. One that was only read ahead
// is in memory now, for the courier.
func (s *shelf) Loaded(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error) {
	s.reader.Loaded(e, m, meta, err)
}

// Closed is the end; the next owner takes up what waits.
func (s *shelf) Closed(error, []any) {}
