package router

import (
	"cmp"
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// jobs is what a named queue has beyond other queues: its definition, and a line
// for each function that its jobs are for. A job whose function has nobody with
// room for it stands aside in that line, so that those for others go past it; one
// whose function nobody serves is looked at again when somebody comes who does.
type jobs struct {
	name       string
	definition *protocol.QueueDefinition // nil: nobody has told any, or it was removed
	lines      map[protocol.FunctionSpec]*line
	served     []*line // those with jobs and consumers
}

// line is the jobs of a queue for one function, and who takes them.
type line struct {
	lineup
	function  protocol.FunctionSpec
	consumers []*consumer
	next      int   // whose turn it is
	looks     int64 // how often somebody was looked for
}

// maxAside is how many jobs of a queue stand aside because those who serve their
// functions have no room: beyond it the queue waits for them. Jobs that nobody
// serves do not count.
const maxAside = 1024

// functionOf is the function that a job is for.
func functionOf(m *broker.Message) protocol.FunctionSpec {
	return protocol.FunctionSpec{
		Namespace: cmp.Or(headerOf(m, protocol.HeaderNamespace), protocol.DefaultNamespace),
		ID:        headerOf(m, protocol.HeaderFunction),
	}
}

// nameless gives up a message that somebody has put straight into a named queue
// and that is no job.
func (l *lane) nameless(e *broker.Entry) {
	meta := l.storeOf(e).Meta(e)
	meta.Reason, meta.Error = protocol.ReasonRejected, "the message names no function in the header "+protocol.HeaderFunction+": enqueue a job instead, or discard it"
	meta.LastFailure, meta.FirstFailure, meta.Due = l.wall, l.wall, 0
	l.giveUp(e, meta)
	e.Slot = settled
}

func headerOf(m *broker.Message, name string) string {
	if v := m.Headers[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// define makes a named queue what its definition says; nil: it has none any more.
// What it holds then waits for another.
func (l *lane) define(name string, config *protocol.QueueDefinition) {
	queue := scope.JobsQueue(name)
	if config == nil && l.queues[queue] == nil {
		return
	}
	q := l.queue(queue)
	q.jobs.definition = config
	if config == nil {
		q.jobs.disband(q)
		return
	}
	q.setPolicy(q.jobs.policy())
	for _, c := range q.consumers {
		served := protocol.DeclaredFunction{FunctionSpec: c.line.function, Concurrency: c.asked}
		c.update(c.since, q.jobs.subscription(c.worker, c.Subscription.ID, c.Deliver, &served))
	}
	q.demand()
	l.wake(q)
}

// disband forgets who would take jobs that the queue has none of.
func (j *jobs) disband(q *queue) {
	for f, n := range j.lines {
		if n.size > 0 {
			continue
		}
		for _, c := range n.consumers {
			q.detach(c)
		}
		delete(j.lines, f)
	}
}

// policy is how failures of the queue's jobs are answered.
func (j *jobs) policy() policy {
	d := j.definition
	p := policy{maxRetries: d.MaxRetries, backoffMs: d.BackoffMs, onDeadLetter: d.OnDeadLetter, maxPriority: uint8(d.MaxPriority)}
	p.fifo = d.Type == protocol.TypeFIFO
	return p
}

// subscription is a worker's consumer of the queue's jobs for a function. One
// that is not known takes nothing more.
func (j *jobs) subscription(w *worker, id, deliver string, f *protocol.DeclaredFunction) protocol.Subscription {
	d := j.definition
	if d == nil {
		d = &notToldYet
	}
	sub := protocol.Subscription{
		ID: id, Worker: w.id, Queue: scope.JobsQueue(j.name), Deliver: deliver,
		Concurrency: d.Concurrency, MaxRetries: d.MaxRetries, BackoffMs: d.BackoffMs, TimeoutMs: d.TimeoutMs,
		OnDeadLetter: d.OnDeadLetter, MaxPriority: uint8(d.MaxPriority),
	}
	if d.Type == protocol.TypeFIFO {
		sub.Type = protocol.TypeFIFO
	}
	if f != nil && f.Concurrency > 0 {
		sub.Concurrency = min(sub.Concurrency, f.Concurrency)
	}
	return sub
}

// notToldYet stands for a definition until it is told.
var notToldYet = protocol.DefaultQueueDefinition()

// line is a function's, made when the first job for it comes.
func (q *queue) line(f protocol.FunctionSpec) *line {
	n := q.jobs.lines[f]
	if n == nil {
		n = &line{function: f}
		q.jobs.lines[f] = n
		q.lane.staff(q, n)
	}
	return n
}

// pick is the line's consumer whose turn it is, nil if none has room.
func (n *line) pick(now int64) *consumer {
	for range n.consumers {
		if n.next >= len(n.consumers) {
			n.next = 0
		}
		c := n.consumers[n.next]
		n.next++
		if c.free(now) {
			return c
		}
	}
	return nil
}

// deliverJob is deliverNext for a named queue. As long as it is not known which
// jobs of before this owner run, there may be as many as may run at once.
func (l *lane) deliverJob(q *queue) bool {
	j := q.jobs
	if j.definition == nil || q.inflight >= j.definition.Concurrency || q.held.size > 0 {
		return false
	}
	first := q.ready.peek()
	if n, c := j.aside(l.now); n != nil && !before(first, n.peek(), &q.ready) {
		return l.deliverAside(q, n, c)
	}
	if first == nil || j.waiting() >= maxAside || len(l.serving) == 0 && l.storeOf(first).Message(first) == nil {
		return false // what nobody can take is not read for that
	}
	m := l.body(q, first)
	if m == nil {
		return false
	}
	n := q.line(l.s.runs(functionOf(m)))
	c := n.pick(l.now)
	l.takeNext(q, first)
	if c != nil && n.size == 0 {
		l.deliver(l.begin(first, q, c), m)
		return true
	}
	first.Slot = nil // its body is read again when its turn comes
	q.standAside(n, first)
	if len(n.consumers) == 0 {
		l.strangers.add(l, first)
	}
	return true
}

// before says whether a, which may be nil, goes before b for its priority.
func before(a, b *broker.Entry, in *lineup) bool {
	return a != nil && min(a.Priority, in.most) > min(b.Priority, in.most)
}

// deliverAside delivers the first job of a line to c.
func (l *lane) deliverAside(q *queue, n *line, c *consumer) bool {
	e := n.peek()
	m := l.body(q, e)
	if m == nil {
		return false
	}
	n.pop()
	q.jobs.counted(n)
	l.takenAhead(q, e)
	l.deliver(l.begin(e, q, c), m)
	return true
}

// aside is the line with the job that came first of those whose function has
// somebody with room for it, and who that is.
func (j *jobs) aside(now int64) (found *line, c *consumer) {
	for _, n := range j.served {
		if found != nil && !goesBefore(n.peek(), found.peek(), n.most) {
			continue
		}
		if taker := n.pick(now); taker != nil {
			found, c = n, taker
		}
	}
	return found, c
}

// goesBefore is the order of deliveries.
func goesBefore(a, b *broker.Entry, most uint8) bool {
	if p, q := min(a.Priority, most), min(b.Priority, most); p != q {
		return p > q
	}
	return a.Key < b.Key
}

// waiting is how many jobs wait for somebody who serves their function to have
// room.
func (j *jobs) waiting() (size int) {
	for _, n := range j.served {
		size += n.size
	}
	return size
}

// standAside puts a job into its line.
func (q *queue) standAside(n *line, e *broker.Entry) {
	if n.size == 0 {
		n.lineup = lineup{most: q.ready.most}
		if len(n.consumers) == 0 {
			n.looks++
		}
	}
	n.push(e)
	q.jobs.counted(n)
}

// counted takes note that a line has more or fewer jobs, or consumers.
func (j *jobs) counted(n *line) {
	i := slices.Index(j.served, n)
	switch serves := n.size > 0 && len(n.consumers) > 0; {
	case serves && i < 0:
		j.served = append(j.served, n)
	case !serves && i >= 0:
		j.served = slices.Delete(j.served, i, i+1)
	}
}

// withdraw takes e out of the line it stands in; false if it stands in none.
func (j *jobs) withdraw(e *broker.Entry) bool {
	for _, n := range j.lines {
		if n.size > 0 && n.remove(e) {
			j.counted(n)
			return true
		}
	}
	return false
}

// rejoin puts everything back, to be looked at anew.
func (j *jobs) rejoin(ready *lineup) {
	for _, n := range j.lines {
		for e := n.pop(); e != nil; e = n.pop() {
			ready.push(e)
		}
		j.counted(n)
	}
}

// ahead yields the jobs that stand aside and come next, about in order, until f
// returns false; then it does too.
func (j *jobs) ahead(now int64, f func(*broker.Entry) bool) bool {
	for _, n := range j.served {
		isFree := func(c *consumer) bool { return c.free(now) }
		if slices.ContainsFunc(n.consumers, isFree) && !n.ahead(f) {
			return false
		}
	}
	return true
}

// mostUnserved bounds what a listing says of a queue.
const mostUnserved = 100

// unserved are the functions that jobs wait for and nobody serves, those with
// the most jobs first.
func (j *jobs) unserved() []protocol.UnservedFunction {
	var all []protocol.UnservedFunction
	for f, n := range j.lines {
		if n.size > 0 && len(n.consumers) == 0 {
			all = append(all, protocol.UnservedFunction{FunctionSpec: f, Jobs: int64(n.size), Looks: n.looks})
		}
	}
	slices.SortFunc(all, func(a, b protocol.UnservedFunction) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(len(all), mostUnserved)]
}
