package router

import (
	"slices"

	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// sideline holds what was ready and has takers that had no room when its turn
// came, so that it does not hold up what others want. It goes before what is
// ready as soon as one of its takers has room.
type sideline struct {
	lineup
	takers takers
}

// takers says which of a queue's filters match a message, by their numbers.
type takers uint64

// maxSidelined is how many filters a queue's consumers may have for messages to
// go past each other; with more they wait for each other.
const maxSidelined = 64

func (t takers) has(c *consumer) bool { return t>>min(c.nth, maxSidelined-1)&1 != 0 }

// takersOf asks each filter once. Those beyond the last number share it.
func (q *queue) takersOf(d *filter.Document) takers {
	var t takers
	for i, f := range q.filters {
		if f.Match(d) {
			t |= 1 << min(i, maxSidelined-1)
		}
	}
	return t
}

// deliverWanted is deliverNext for a queue whose consumers have filters.
func (l *lane) deliverWanted(q *queue) bool {
	if s, c := q.sidelined(l.now); s != nil {
		e := s.peek()
		m := l.body(q, e)
		if m == nil {
			return false
		}
		q.withdraw(e)
		l.takenAhead(q, e)
		l.deliver(l.begin(e, q, c), m)
		return true
	}
	e := q.ready.peek()
	if e == nil || q.pick(l.now) == nil {
		return false
	}
	m := l.body(q, e)
	if m == nil {
		return false
	}
	return l.deliverTo(q, e, m, q.takersOf(l.document.Input(m.Body)))
}

// deliverTo delivers the queue's next message to one of its takers.
func (l *lane) deliverTo(q *queue, e *broker.Entry, m *broker.Message, t takers) bool {
	wants := func(c *consumer) bool {
		return t.has(c) && (len(q.filters) <= maxSidelined || c.filter.Match(l.document.Input(m.Body)))
	}
	c := q.pickOf(l.now, wants)
	if t == 0 && !l.everyone || c == nil && t != 0 && len(q.filters) > maxSidelined {
		return false
	}
	l.takeNext(q, e)
	switch {
	case c != nil:
		l.deliver(l.begin(e, q, c), m)
	case t == 0:
		l.leaveOut(e, q)
	default:
		e.Slot = nil // its body is read again when its turn comes
		q.setAside(e, t)
	}
	return true
}

func (q *queue) setAside(e *broker.Entry, t takers) {
	i := slices.IndexFunc(q.aside, func(s *sideline) bool { return s.takers == t })
	if i < 0 {
		i = len(q.aside)
		q.aside = append(q.aside, &sideline{takers: t, lineup: lineup{most: q.ready.most}})
	}
	q.aside[i].push(e)
}

// sidelined is a sideline of which a consumer with room wants something, and
// that consumer.
func (q *queue) sidelined(now int64) (*sideline, *consumer) {
	for _, s := range q.aside {
		if s.size == 0 {
			continue
		}
		if c := q.pickOf(now, s.takers.has); c != nil {
			return s, c
		}
	}
	return nil, nil
}

// withdraw takes e out of what is deliverable; false if it is not there.
func (q *queue) withdraw(e *broker.Entry) bool {
	return q.ready.remove(e) || slices.ContainsFunc(q.aside, func(s *sideline) bool { return s.remove(e) }) ||
		q.jobs != nil && q.jobs.withdraw(e)
}

// unsideline puts everything back, to be looked at anew.
func (q *queue) unsideline() {
	for _, s := range q.aside {
		for e := s.pop(); e != nil; e = s.pop() {
			q.ready.push(e)
		}
	}
	q.aside = nil
	if q.jobs != nil {
		q.jobs.rejoin(&q.ready)
	}
}

// deliverable is how many entries wait for a consumer.
func (q *queue) deliverable() int {
	n := q.ready.size
	for _, s := range q.aside {
		n += s.size
	}
	if q.jobs != nil {
		n += q.jobs.waiting()
	}
	return n
}

// readyAhead yields the entries that come next, about in order, until f
// returns false; then it does too.
func (q *queue) readyAhead(f func(*broker.Entry) bool) bool {
	for _, s := range q.aside {
		isFree := func(c *consumer) bool { return c.free(q.lane.now) && s.takers.has(c) }
		if s.size > 0 && slices.ContainsFunc(q.consumers, isFree) && !s.ahead(f) {
			return false
		}
	}
	if q.jobs != nil && !q.jobs.ahead(q.lane.now, f) {
		return false
	}
	return q.ready.ahead(f)
}
