package router

import (
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// group is the messages of a FIFO queue that are handled in order, one at a
// time. Who is away keeps its place: the group waits until it has come back or
// is gone for good.
type group struct {
	id      uint64 // groupOf its entries
	waiting readyList
	next    *broker.Entry   // in queue.ready
	away    []*broker.Entry // in a worker's hands, judged, pausing, or being settled
	held    int             // of queue.held
	// letter is the dead letter the group waits for, zero for none, see blocks;
	// first is that one, when it has come back.
	letter protocol.MessageID
	first  *broker.Entry
}

// put lines e up.
func (g *group) put(e *broker.Entry) {
	if g.isBlocked() && e.ID == g.letter {
		g.first = e
		return
	}
	g.waiting.push(e)
}

func (g *group) isBlocked() bool { return g.letter != protocol.MessageID{} }

// turn takes the entry whose turn it is, nil if there is none.
func (g *group) turn() *broker.Entry {
	if g.isBlocked() {
		e := g.first
		g.first = nil
		return e
	}
	e := g.waiting.peek()
	if e == nil || e.Slot == unreadable {
		return nil
	}
	return g.waiting.pop()
}

// isFree says whether nothing of the group is under way.
func (g *group) isFree() bool { return g.next == nil && len(g.away) == 0 && g.held == 0 }

func (g *group) isEmpty() bool { return g.isFree() && g.waiting.size == 0 && !g.isBlocked() }

// back says that e is not away any more.
func (g *group) back(e *broker.Entry) {
	if i := slices.Index(g.away, e); i >= 0 {
		g.away = slices.Delete(g.away, i, i+1)
	}
}

// groupOf is the number of e's group: there is only one in a queue that is
// handled strictly one after the other.
func (q *queue) groupOf(e *broker.Entry) uint64 {
	if q.policy.Serial {
		return 0
	}
	return e.Group
}

// group is the one e belongs to, made if nothing of it was here.
func (q *queue) group(e *broker.Entry) *group { return q.groupOfNumber(q.groupOf(e)) }

func (q *queue) groupOfNumber(id uint64) *group {
	g := q.groups[id]
	if g == nil {
		g = &group{id: id}
		q.groups[id] = g
	}
	return g
}

// add makes e deliverable, in a FIFO queue once it is its turn.
func (q *queue) add(e *broker.Entry) {
	if q.groups == nil {
		q.ready.push(e)
		q.lane.wake(q)
		return
	}
	g := q.group(e)
	g.back(e)
	if next := g.next; next != nil && e.Key < next.Key && !g.isBlocked() {
		q.withdraw(next)
		g.next = nil
		g.waiting.push(next)
	}
	g.put(e)
	q.offer(g)
}

// offer makes the group's first message deliverable if nothing of the group is
// under way. A damaged one is passed by nobody: that is the operator's to decide.
func (q *queue) offer(g *group) {
	if !g.isFree() {
		return
	}
	if e := g.turn(); e != nil {
		g.next = e
		q.ready.push(e)
		q.lane.wake(q)
		return
	}
	if g.isEmpty() {
		delete(q.groups, g.id)
	}
}

// unblock lets a group go on that waited for a dead letter.
func (q *queue) unblock(g *group) {
	g.letter = protocol.MessageID{}
	if e := g.first; e != nil {
		g.first = nil
		g.waiting.push(e)
	}
	q.offer(g)
}

// take says that e is not deliverable any more and may come back: its group
// waits for it.
func (q *queue) take(e *broker.Entry) {
	if q.groups == nil {
		return
	}
	g := q.group(e)
	if g.next == e {
		g.next = nil
	}
	if !slices.Contains(g.away, e) {
		g.away = append(g.away, e)
	}
}

// end says that e is gone for good: its group goes on.
func (q *queue) end(e *broker.Entry) {
	if q.groups == nil {
		return
	}
	if g := q.groups[q.groupOf(e)]; g != nil {
		g.back(e)
		q.offer(g)
	}
}

// remove takes e, which is deliverable or waits for its turn, out. take or end
// follows.
func (q *queue) remove(e *broker.Entry) {
	removed := q.withdraw(e)
	if q.groups == nil {
		return
	}
	g := q.group(e)
	switch {
	case removed:
		g.next = nil
	case g.first == e:
		g.first = nil
	default:
		g.waiting.remove(e)
	}
}

// stuck keeps the place of e, which was removed because it cannot be delivered.
func (q *queue) stuck(e *broker.Entry) {
	if q.groups != nil {
		q.group(e).waiting.push(e)
	}
}

// ahead yields the entries that come next, about in order, until f returns
// false.
func (q *queue) ahead(f func(*broker.Entry) bool) {
	if !q.readyAhead(f) || q.groups == nil {
		return
	}
	q.ready.ahead(func(e *broker.Entry) bool { return q.groups[q.groupOf(e)].waiting.ahead(f) })
}

// noLongerHeld takes e out of what is withheld.
func (q *queue) noLongerHeld(e *broker.Entry) {
	if q.held.remove(e) && q.groups != nil {
		q.group(e).held--
	}
}

// unhold makes deliverable what is withheld.
func (q *queue) unhold() {
	if q.groups == nil {
		q.ready.take(&q.held)
		return
	}
	for e := q.held.pop(); e != nil; e = q.held.pop() {
		g := q.group(e)
		g.held--
		g.put(e)
		q.offer(g)
	}
}

// setPolicy makes the queue what its newest subscription asks for.
func (q *queue) setPolicy(p policy) {
	q.unsideline()
	renumbered := q.policy.Serial != p.Serial
	if len(q.lane.blocks.all) > 0 && (!p.fifo || p.onDeadLetter != protocol.DeadLetterBlock || renumbered) {
		q.lane.blocks.removeAll(q.lane, q.name)
	}
	if q.groups != nil && (!p.fifo || renumbered) {
		q.ungroup()
	}
	asked := p
	q.policy = &asked
	if p.fifo {
		p.maxPriority = 0
	}
	if p.fifo && q.groups == nil {
		q.regroup()
	}
	q.ready.limit(p.maxPriority)
}

// regroup makes a FIFO queue of one that was none, or that nobody has said
// anything of since its lane was opened.
func (q *queue) regroup() {
	ready := q.ready
	q.ready, q.groups = lineup{}, make(map[uint64]*group)
	q.lane.blocks.apply(q)
	q.held.ahead(func(e *broker.Entry) bool {
		q.group(e).held++
		return true
	})
	for e := range q.lane.awayFrom(q) {
		q.take(e)
	}
	ready.limit(0)
	for e := ready.pop(); e != nil; e = ready.pop() {
		q.add(e)
	}
}

// ungroup makes a FIFO queue one that is none.
func (q *queue) ungroup() {
	groups := q.groups
	q.groups = nil
	for _, g := range groups {
		for e := g.waiting.pop(); e != nil; e = g.waiting.pop() {
			q.ready.push(e)
		}
	}
	q.lane.wake(q)
}

// awayFrom yields the entries of a queue that are neither deliverable nor
// withheld, and have a place to come back to.
func (l *lane) awayFrom(q *queue) func(yield func(*broker.Entry) bool) {
	return func(yield func(*broker.Entry) bool) {
		for _, e := range l.pauses.entries {
			if l.queueOf(e) == q && !scheduled(e) && !yield(e) {
				return
			}
		}
		if q.inflight+q.judging == 0 {
			return
		}
		for _, list := range l.deadlines {
			for d := list.first; d != nil; d = d.next {
				if d.q == q && !yield(d.e) {
					return
				}
			}
		}
		for _, d := range slices.Concat(l.late.deliveries, l.verdicts.all()) {
			if d.q == q && !yield(d.e) {
				return
			}
		}
	}
}

// groupCounts describes the groups of a FIFO queue.
func (q *queue) groupCounts() (kind protocol.QueueType, all, held, blocked int) {
	for _, g := range q.groups {
		if slices.ContainsFunc(g.away, func(e *broker.Entry) bool { return e.Slot == paused }) {
			held++
		}
		if g.isBlocked() {
			blocked++
		}
	}
	return protocol.TypeFIFO, len(q.groups), held, blocked
}
