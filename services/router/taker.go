package router

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// By default a job runs in the namespace that it was enqueued in. With
// config.RunInWorker it runs in that of the worker that takes it: each worker
// takes the jobs that name a function of its own namespace, by its id alone. One
// that nobody here has is given back to the broker, unspent, for somebody else
// who consumes the queue.

// runs is the function by which jobs are told apart.
func (s *Service) runs(f protocol.FunctionSpec) protocol.FunctionSpec {
	if s.takersOwn {
		f.Namespace = ""
	}
	return f
}

// takes says whether a worker takes jobs for a function that it serves.
func (s *Service) takes(w *server, f protocol.FunctionSpec) bool {
	return !s.takersOwn || f.Namespace == w.namespace
}

// runIn takes over, once, where jobs run. To do so in their takers' namespaces
// needs somebody who tells what functions there are.
func (s *Service) runIn(ctx context.Context, c *protocol.Config) error {
	s.takersOwn = c.RunJobsIn == config.RunInWorker
	if !s.takersOwn {
		return nil
	}
	subject := protocol.FunctionSubject(protocol.DefaultNamespace, protocol.FunctionInfoOf)
	_, err := mesh.Request[protocol.FunctionDetail](ctx, s.bulk, subject, protocol.FunctionInfoRequest{FunctionID: protocol.FunctionInfoOf})
	if protocol.CodeOf(err) == protocol.CodeUnavailable {
		return protocol.Errorf(protocol.CodeUnsupported, "run_jobs_in %s needs %s, which nobody serves: start a registry of this version, or leave run_jobs_in out", config.RunInWorker, protocol.FunctionInfoOf)
	}
	return nil
}

// strangerFor is about how long a job that nobody here has a function for stays, unless
// something changes: half of it to one and a half, by chance. Two meshes that gave back
// in turns, each at its time, would be given the same jobs for ever by a broker that
// delivers in turns.
const strangerFor = int64(time.Second)

// strangers are jobs on a broker that nobody here has a function for.
type strangers struct {
	waiting []stranger
	soonest int64 // of their times; Service.clock, as those
	changed bool  // who serves what has, since they were looked at
}

type stranger struct {
	e     *broker.Entry
	until int64
}

// add notes a job that has nobody, if another may have somebody for it. In order
// none is given back: there is one consumer, and others would pass it.
func (s *strangers) add(l *lane, e *broker.Entry) {
	if !l.s.takersOwn || !isRemote(e) || l.queueOf(e).groups != nil {
		return
	}
	x := stranger{e, l.now + strangerFor/2 + rand.Int64N(strangerFor)} //nolint:gosec // no secret
	if len(s.waiting) == 0 || x.until < s.soonest {
		s.soonest = x.until
	}
	s.waiting = append(s.waiting, x)
}

// tick gives back those whose time is up, after one change or a while.
func (s *strangers) tick(l *lane) {
	if len(s.waiting) == 0 || !s.changed && l.now < s.soonest {
		s.changed = false
		return
	}
	all, everyone := s.waiting, s.changed
	s.waiting, s.changed, s.soonest = nil, false, math.MaxInt64
	for _, x := range all {
		if everyone || l.now >= x.until {
			l.toOthers(x.e)
			continue
		}
		s.waiting, s.soonest = append(s.waiting, x), min(s.soonest, x.until)
	}
}

func (s *strangers) next(l *lane) int64 {
	switch {
	case len(s.waiting) == 0:
		return l.now + int64(idle)
	case s.changed:
		return l.now
	}
	return s.soonest
}

// toOthers gives a job back to its broker that stands aside for a function which
// still nobody has.
func (l *lane) toOthers(e *broker.Entry) {
	r, ok := l.storeOf(e).(broker.RemoteStore)
	if !ok || e.Slot != nil {
		return // it has left, or is in somebody's hands
	}
	q := l.queueOf(e)
	for _, n := range q.jobs.lines {
		if len(n.consumers) == 0 && n.size > 0 && n.remove(e) {
			q.jobs.counted(n)
			q.end(e)
			r.GiveBack(e)
			return
		}
	}
}
