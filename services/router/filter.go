package router

import (
	"bytes"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// An observer's filter is asked twice. When a message is published it keeps what
// nobody there wants from being stored; a queue that nobody takes from stores
// everything, since who comes back may have another filter. When a message is
// delivered it decides, as it is then. What is left out either time is
// acknowledged unseen, and counted.

// setFilter takes a registration's filter over. One of a later version that
// cannot be read wants everything, lest it is left out, and takes nothing.
func (c *consumer) setFilter(s *protocol.Subscription) {
	if c.filter != nil && bytes.Equal(s.Filters, c.Filters) {
		return
	}
	c.filter, c.unreadable = &filter.Filter{}, false
	if len(s.Filters) == 0 {
		return
	}
	f, err := filter.Compile(s.Filters)
	if err != nil {
		c.unreadable = true
		c.q.lane.s.log.Error("an observer's filter cannot be read; nothing is delivered to it: upgrade this router", "subscription", s.ID, "queue", s.Queue, "error", err)
		return
	}
	c.filter = f
}

// refilter notes which filters the queue's consumers have, each once; none if
// one of them takes everything.
func (q *queue) refilter() {
	if q.jobs != nil {
		return // jobs are not filtered
	}
	q.unsideline()
	q.filters = nil
	for _, c := range q.consumers {
		if c.filter.Everything() && !c.unreadable {
			q.filters = nil
			return
		}
		c.nth = slices.IndexFunc(q.filters, func(f *filter.Filter) bool { return f.String() == c.filter.String() })
		if c.nth < 0 {
			c.nth = len(q.filters)
			q.filters = append(q.filters, c.filter)
		}
	}
}

// toldAll says that the lane knows everyone there is: from now on what none of a
// queue's consumers wants can be left out. Before, another might.
func (l *lane) toldAll() {
	l.everyone = true
	for _, q := range l.queues {
		if len(q.filters) > 0 {
			l.wake(q)
		}
	}
}

// wants says whether one of the consumers wants what is published.
func (q *queue) wants(d *filter.Document) bool {
	return len(q.filters) == 0 || slices.ContainsFunc(q.filters, func(f *filter.Filter) bool { return f.Match(d) })
}

// isPlain says that the queue receives whatever is published as it is.
func (q *queue) isPlain() bool {
	return len(q.filters) == 0 && !q.delays() && q.policy.GroupField == ""
}

// delays says whether what is published now is put off.
func (q *queue) delays() bool { return q.policy.DelayMs > 0 || q.lastDue > q.lane.wall }

// address decides which of a topic's queues receive a publish, and what each
// makes of it. The payload is read at most once.
func (l *lane) address(t *topic, p *publication) []broker.Copy {
	if !slices.ContainsFunc(t.queues, func(q *queue) bool { return !q.isPlain() }) {
		p.to = t.queues
		return t.copies
	}
	d := l.document.Input(p.message.Body)
	l.copies = l.copies[:0]
	for i, q := range t.queues {
		if p.due == 0 && l.everyone && !q.isRemote() && !q.wants(d) {
			if p.leftOut == nil {
				p.to = slices.Clone(t.queues[:i])
			}
			p.leftOut = append(p.leftOut, q)
			continue
		}
		if p.leftOut != nil {
			p.to = append(p.to, q)
		}
		l.copies = append(l.copies, q.copyOf(d))
	}
	if p.leftOut == nil {
		p.to = t.queues
	}
	return l.copies
}

// copyOf is what q makes of a publish.
func (q *queue) copyOf(d *filter.Document) broker.Copy {
	c := broker.Copy{Queue: q.name}
	if field := q.policy.GroupField; field != "" {
		c.Group = ledger.GroupOf(d.Member(field))
	}
	if q.delays() {
		c.Due = q.firstDue()
	}
	return c
}

// firstDue is when what is published now is first delivered. In a FIFO queue that
// is never before what was published earlier, whatever becomes of the delay.
func (q *queue) firstDue() int64 {
	due := q.lane.wall + q.policy.DelayMs*int64(time.Millisecond)
	if q.policy.fifo {
		due = max(due, q.lastDue)
		q.lastDue = due
	}
	return due
}

// countLeftOut counts a publish for the queues that do not receive it.
func (l *lane) countLeftOut(p *publication) {
	for _, q := range p.leftOut {
		l.count(q, ledger.Published)
		l.count(q, ledger.Filtered)
	}
}

// leaveOut acknowledges an entry that no consumer wants.
func (l *lane) leaveOut(e *broker.Entry, q *queue) {
	delete(l.handedBack, e.Key)
	l.settle(e, q, ledger.Filtered)
}
