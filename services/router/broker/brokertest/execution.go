package brokertest

import (
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// close closes an execution.
func (s *suite) close(execution string, purge bool) protocol.Execution {
	s.Helper()
	return ask[protocol.Execution](s, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: execution, Purge: purge})
}

// refused expects that a route takes no messages.
func (s *suite) refused(execution, route string, headers ...string) {
	s.Helper()
	_, refused := s.tryPublish(protocol.PublishQueueSubject(execution, route), []byte("late"), pairs(headers))
	if refused == nil || refused.Code != protocol.CodeExecutionClosed {
		s.Errorf("publishing to %s of %s: got %v, want %s", route, execution, refused, protocol.CodeExecutionClosed)
	}
}

// forgotten waits until nothing of an execution is known but its tombstone.
func (s *suite) forgotten(execution string) {
	s.Helper()
	for _, subject := range queueSubjects {
		s.eventually("no queue of "+execution+" on "+subject, func() bool {
			return len(s.queues(subject, protocol.QueuesRequest{Execution: execution})) == 0
		})
	}
	subscriptions := ask[protocol.SubscriptionsPage](s, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Execution: execution})
	equal(s, "subscriptions", len(subscriptions.Subscriptions), 0)
}

// executionClosed: no publish is taken, what is there is finished and retried,
// a redrive is refused, and what is empty is forgotten.
func (s *suite) executionClosed() {
	spec := s.on("r")
	spec.MaxRetries, spec.BackoffMs = 2, 300
	w := s.worker(spec)
	s.publish("r", []byte("running"))
	running := w.next()
	s.publish("r", []byte("retried"))
	w.next().end(protocol.Failed)
	s.publish("dead", nil)
	dying := s.worker(s.on("dead")).next()
	dying.end(protocol.Rejected)
	letter := s.awaitLetters("dead", 1)[0]

	closed := s.close(s.execution, false)
	if closed.State != protocol.ExecutionClosed || closed.Left < 3 {
		s.Errorf("closing three messages: got %+v", closed)
	}
	s.refused(s.execution, "r")
	s.refused(s.execution, "new")
	s.refused(s.execution, "r", protocol.HeaderDelayMs, "1")
	running.end(protocol.Acknowledged)
	d := w.next()
	equal(s, "message", string(d.Data), "retried")
	equal(s, "attempt", d.attempt(), 2)
	d.end(protocol.Acknowledged)
	s.awaitEmpty("r", 0)

	for _, q := range []protocol.DeadActRequest{{MessageID: letter.MessageID}, {Queue: letter.Queue}} {
		_, err := mesh.Request[protocol.DeadActReply](s.guarded(), s.nc, protocol.SubjectDeadRedrive, q)
		if protocol.CodeOf(err) != protocol.CodeExecutionClosed {
			s.Errorf("redriving %+v: got %v, want %s", q, err, protocol.CodeExecutionClosed)
		}
	}
	equal(s, "letters", len(s.letters(s.execution, "dead")), 1)
	equal(s, "discarded", ask[protocol.DeadActReply](s, protocol.SubjectDeadDiscard, protocol.DeadActRequest{Queue: letter.Queue}).Count, 1)
	s.eventually("the execution to be gone", func() bool { return s.close(s.execution, false).State == protocol.ExecutionGone })
	s.forgotten(s.execution)
	s.refused(s.execution, "r")
}

// executionPurged: what is ready, waiting, scheduled, dead or in a worker's
// hands is dropped, and a late outcome changes nothing.
func (s *suite) executionPurged() {
	spec := s.on("r")
	one := 1
	spec.Concurrency, spec.BackoffMs = &one, 3_600_000
	w := s.worker(spec)
	s.publish("r", []byte("waits"))
	w.next().end(protocol.Failed)
	s.await("r", "the retry to wait", func(q protocol.QueueInfo) bool { return q.Waiting == 1 })
	s.publish("r", nil, protocol.HeaderDelayMs, "3600000")
	s.publish("r", []byte("dead"))
	w.next().end(protocol.Rejected)
	s.awaitLetters("r", 1)
	s.publish("r", []byte("running"))
	running := w.next()
	for range 5 {
		s.publish("r", []byte("ready"))
	}
	purged := s.close(s.execution, true)
	equal(s, "left", purged.Left, 0)
	running.end(protocol.Acknowledged)
	s.eventually("the execution to be gone", func() bool { return s.close(s.execution, true).State == protocol.ExecutionGone })
	s.forgotten(s.execution)
	s.refused(s.execution, "r")
	s.stays("no delivery after the purge", func() bool { return len(w.deliveries) == 0 })
}

// executionReopened: a closed execution takes messages again, with the workers
// that were there.
func (s *suite) executionReopened() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("before"))
	w.next().end(protocol.Acknowledged)
	s.awaitEmpty("r", 0)
	s.close(s.execution, false)
	s.eventually("the execution to be gone", func() bool { return s.close(s.execution, false).State == protocol.ExecutionGone })
	ask[protocol.Empty](s, protocol.SubjectExecutionReopen, protocol.ExecutionReopenRequest{Execution: s.execution})
	s.publish("r", []byte("after"))
	d := w.next()
	equal(s, "message", string(d.Data), "after")
	d.end(protocol.Acknowledged)
	s.awaitEmpty("r", 0)
	_, err := mesh.Request[protocol.Empty](s.guarded(), s.nc, protocol.SubjectExecutionReopen, protocol.ExecutionReopenRequest{Execution: s.execution})
	equal(s, "reopened twice", protocol.CodeOf(err), protocol.CodeNotFound)
}

// executionNeighbours: executions whose ids begin alike are strangers, and an id
// that cannot be closes nothing.
func (s *suite) executionNeighbours() {
	id := "E" + nuid.Next()
	neighbours := []string{id[:len(id)-1], id + "x", id + "-", id + "_", "_" + id, sixtyFour[:64-len(id)] + id}
	for _, other := range append(neighbours, id) {
		s.publishTo(other, "r", []byte("x"))
	}
	for _, bad := range []string{"*", ">", "", ".", id + "/r", id + ".r", id + "*", id + ".>", "a b", sixtyFour + "x", "/queue/" + id, "ä"} {
		for _, purge := range []bool{false, true} {
			_, err := mesh.Request[protocol.Execution](s.guarded(), s.nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: bad, Purge: purge})
			if protocol.CodeOf(err) != protocol.CodeInvalidName {
				s.Errorf("closing %q: got %v, want %s", bad, err, protocol.CodeInvalidName)
			}
		}
	}
	equal(s, "left", s.close(id, true).Left, 0)
	s.refused(id, "r")
	for _, other := range neighbours {
		s.publishTo(other, "r", []byte("y"))
		s.wantReady(scope.ScopedName(other, "r"), 2)
	}
}

// closedOverRestart: what is closed stays so.
func (s *suite) closedOverRestart() {
	s.publish("r", []byte("x"))
	s.publishTo(s.execution+"p", "r", []byte("y"))
	s.close(s.execution, false)
	s.close(s.execution+"p", true)
	s.Restart(s.T)
	s.refused(s.execution, "r")
	s.refused(s.execution, "new")
	s.refused(s.execution+"p", "r")
	s.worker(s.on("r")).next().end(protocol.Acknowledged)
	s.eventually("the execution to be gone", func() bool { return s.close(s.execution, false).State == protocol.ExecutionGone })
	s.forgotten(s.execution)
	s.forgotten(s.execution + "p")
}
