package router

import (
	"slices"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// server is a worker that takes jobs, as the registry describes it.
type server struct {
	worker    *worker
	namespace string
	since     time.Time
	frames    string
	functions []protocol.ServedFunction
}

// takesJobs are the functions of a worker that it takes jobs for.
func takesJobs(w *protocol.Worker) []protocol.ServedFunction {
	if w.Gone {
		return nil
	}
	var all []protocol.ServedFunction
	for _, f := range w.Functions {
		if f.Deliver != "" {
			all = append(all, f)
		}
	}
	return all
}

// serve makes a worker one who takes jobs for these functions, and no others.
// Queues that have such jobs are looked at once.
func (l *lane) serve(now server) {
	w, before := now.worker, l.servers[now.worker]
	for _, f := range before.functions {
		if !slices.ContainsFunc(now.functions, func(x protocol.ServedFunction) bool { return x.FunctionSpec == f.FunctionSpec }) && l.s.takes(&before, f.FunctionSpec) {
			l.dismiss(w, l.s.runs(f.FunctionSpec))
		}
	}
	l.servers[w] = now
	if len(now.functions) == 0 {
		delete(l.servers, w)
	}
	for i := range now.functions {
		f := &now.functions[i]
		if !l.s.takes(&now, f.FunctionSpec) {
			continue
		}
		runs := l.s.runs(f.FunctionSpec)
		if l.serving[runs] == nil {
			l.serving[runs] = make(map[*worker]*protocol.ServedFunction)
		}
		l.serving[runs][w] = f
		for _, q := range l.named {
			if n := q.jobs.lines[runs]; n != nil {
				l.employ(q, n, w, f)
			}
		}
	}
	l.strangers.changed = true
	for _, q := range l.named {
		q.demand()
		l.wake(q)
	}
}

// dismiss takes a worker from the jobs for a function; what it holds of them
// stays with it.
func (l *lane) dismiss(w *worker, f protocol.FunctionSpec) {
	delete(l.serving[f], w)
	if len(l.serving[f]) == 0 {
		delete(l.serving, f)
	}
	for _, q := range l.named {
		n := q.jobs.lines[f]
		if n == nil {
			continue
		}
		if i := n.of(w); i >= 0 {
			q.detach(n.consumers[i])
			n.consumers = slices.Delete(n.consumers, i, i+1)
			q.jobs.counted(n)
		}
		n.looked()
	}
}

// of is the place of a worker's consumer, -1 if it has none.
func (n *line) of(w *worker) int {
	return slices.IndexFunc(n.consumers, func(c *consumer) bool { return c.worker == w })
}

// looked counts that somebody was looked for, if somebody is missing.
func (n *line) looked() {
	if n.size > 0 && len(n.consumers) == 0 {
		n.looks++
	}
}

// employ makes a worker one who takes the line's jobs.
func (l *lane) employ(q *queue, n *line, w *worker, f *protocol.ServedFunction) {
	at := l.servers[w]
	id := f.Deliver[strings.LastIndexByte(f.Deliver, '.')+1:]
	sub := q.jobs.subscription(w, id, f.Deliver, &f.DeclaredFunction)
	if i := n.of(w); i >= 0 {
		c := n.consumers[i]
		c.update(at.since, sub)
		c.proven()
		c.frames, c.asked = at.frames, f.Concurrency
		return
	}
	n.looked()
	c := newConsumer(q, w, at.since, sub)
	c.line, c.frames, c.asked = n, at.frames, f.Concurrency
	n.consumers = append(n.consumers, c)
	q.consumers = append(q.consumers, c)
	q.jobs.counted(n)
}

// staff finds everybody who serves a new line's function.
func (l *lane) staff(q *queue, n *line) {
	for w, f := range l.serving[n.function] {
		l.employ(q, n, w, f)
	}
}
