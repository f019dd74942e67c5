package brokertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	guard    = 3 * time.Minute        // against hanging; nothing is measured by it
	patience = 10 * time.Second       // before what may have been lost is asked again
	look     = 10 * time.Millisecond  // between looks at a state, at first
	rare     = 160 * time.Millisecond // and later
	quiet    = 300 * time.Millisecond // in which what must not happen would have
)

// suite is one test's view of the mesh.
type suite struct {
	*testing.T
	Target
	nc        *nats.Conn
	execution string
	topics    []string
}

func newSuite(t *testing.T, target Target) *suite {
	s := &suite{T: t, Target: target, execution: "e" + nuid.Next()}
	s.nc = s.connect()
	s.Cleanup(s.show)
	return s
}

// show tells what is in the test's queues, if it has failed.
func (s *suite) show() {
	if !s.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	asked := []protocol.QueuesRequest{{Execution: s.execution}, {Queue: scope.JobsQueue(s.execution)}}
	for _, topic := range s.topics {
		asked = append(asked, protocol.QueuesRequest{Topic: topic})
	}
	for _, q := range asked {
		for _, subject := range queueSubjects {
			page, err := mesh.Request[json.RawMessage](ctx, s.nc, subject, q)
			s.Logf("%s of %+v: %s %v", subject, q, page, err)
		}
	}
}

func (s *suite) connect() *nats.Conn {
	s.Helper()
	nc, err := nats.Connect(s.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		s.Fatalf("connecting: %v", err)
	}
	s.Cleanup(nc.Close)
	return nc
}

// guarded is the context of one call.
func (s *suite) guarded() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), guard)
	s.Cleanup(cancel)
	return ctx
}

// publish publishes to a route of the test's execution and expects it to be
// stored.
func (s *suite) publish(route string, data []byte, headers ...string) protocol.PublishAck {
	s.Helper()
	return s.publishTo(s.execution, route, data, headers...)
}

func (s *suite) publishTo(execution, route string, data []byte, headers ...string) protocol.PublishAck {
	s.Helper()
	ack, refused := s.tryPublish(protocol.PublishQueueSubject(execution, route), data, pairs(headers))
	if refused != nil {
		s.Fatalf("publishing to %s of %s: %v", route, execution, refused)
	}
	return ack
}

// tryPublish returns what the mesh answers: a receipt, or its refusal.
func (s *suite) tryPublish(subject string, data []byte, headers nats.Header) (protocol.PublishAck, *protocol.Error) {
	s.Helper()
	m := &nats.Msg{Subject: subject, Data: data, Header: headers}
	var answer *nats.Msg
	s.eventually("an answer to a publish", func() bool {
		var err error
		answer, err = s.nc.RequestMsgWithContext(s.guarded(), m)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			s.Fatalf("publishing on %s: %v", subject, err)
		}
		return err == nil
	})
	if refused := protocol.ParseErrorBody(answer.Data); refused != nil {
		return protocol.PublishAck{}, refused
	}
	var ack protocol.PublishAck
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		s.Fatalf("the answer %q is no receipt: %v", answer.Data, err)
	}
	return ack, nil
}

func pairs(headers []string) nats.Header {
	h := nats.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h[headers[i]] = []string{headers[i+1]}
	}
	return h
}

// ask asks a service and expects an answer.
func ask[R any](s *suite, subject string, q any) R {
	s.Helper()
	r, err := mesh.Request[R](s.guarded(), s.nc, subject, q)
	if err != nil {
		s.Fatalf("asking %s: %v", subject, err)
	}
	return r
}

// queue is what all services together know of a queue.
func (s *suite) queue(execution, route string) protocol.QueueInfo {
	s.Helper()
	return s.queueNamed(scope.ScopedName(execution, route))
}

func (s *suite) queueNamed(name string) protocol.QueueInfo {
	s.Helper()
	sum := protocol.QueueInfo{Queue: name, Counters: map[string]uint64{}}
	for _, subject := range queueSubjects {
		for _, q := range s.queues(subject, protocol.QueuesRequest{Queue: name}) {
			add(&sum, q)
		}
	}
	return sum
}

// queueSubjects are of the services that have queues.
var queueSubjects = []string{protocol.SubjectQueues, protocol.SubjectWaitingQueues, protocol.SubjectDeadQueues}

// queues is what a service knows of queues, which is asked again if it is away.
func (s *suite) queues(subject string, q protocol.QueuesRequest) []protocol.QueueInfo {
	s.Helper()
	var page protocol.QueuesPage
	s.eventually("an answer on "+subject, func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		defer cancel()
		var err error
		page, err = mesh.Request[protocol.QueuesPage](ctx, s.nc, subject, q)
		if code := protocol.CodeOf(err); err != nil && code != protocol.CodeUnavailable && code != protocol.CodeTimeout {
			s.Fatalf("listing queues: %v", err)
		}
		return err == nil
	})
	return page.Queues
}

func add(sum *protocol.QueueInfo, q protocol.QueueInfo) {
	sum.Topic = q.Topic
	if !q.DetachedAt.IsZero() {
		sum.DetachedAt = q.DetachedAt
	}
	sum.Ready += q.Ready
	sum.InFlight += q.InFlight
	sum.Waiting += q.Waiting
	sum.Dead += q.Dead
	sum.Unknown = cmp.Or(sum.Unknown, q.Unknown)
	sum.Moving += q.Moving
	sum.Consumers += q.Consumers
	sum.Type = cmp.Or(sum.Type, q.Type)
	sum.Groups += q.Groups
	sum.HeldGroups += q.HeldGroups
	sum.BlockedGroups += q.BlockedGroups
	sum.Unserved = append(sum.Unserved, q.Unserved...)
	for name, n := range q.Counters {
		sum.Counters[name] += n
	}
}

// await waits until the queue is as f wants it.
func (s *suite) await(route, what string, f func(q protocol.QueueInfo) bool) protocol.QueueInfo {
	s.Helper()
	var q protocol.QueueInfo
	s.eventually(what, func() bool {
		q = s.queue(s.execution, route)
		return f(q)
	})
	return q
}

// wantReady expects a queue to have n messages ready: as soon as they are answered,
// or, on a broker of its own, once that counts what it has confirmed.
func (s *suite) wantReady(queue string, n int64) protocol.QueueInfo {
	s.Helper()
	q := s.queueNamed(queue)
	if s.Capabilities.Open {
		s.eventually(fmt.Sprintf("%d ready in %s", n, queue), func() bool {
			q = s.queueNamed(queue)
			return q.Ready == n
		})
	}
	equal(s, "ready in "+queue, q.Ready, n)
	return q
}

// awaitEmpty waits until nothing of the queue is left but dead letters.
func (s *suite) awaitEmpty(route string, dead int64) protocol.QueueInfo {
	s.Helper()
	return s.settled(scope.ScopedName(s.execution, route), dead)
}

// settled waits until nothing of the queue is left but dead letters. A message may
// move past the questions, since one service is asked after another: it has come to
// rest when two looks in a row find the same.
func (s *suite) settled(queue string, dead int64) protocol.QueueInfo {
	s.Helper()
	var before, now protocol.QueueInfo
	s.eventually(fmt.Sprintf("%s to be empty but for %d dead letters", queue, dead), func() bool {
		before, now = now, s.queueNamed(queue)
		return now.Ready+now.InFlight+now.Waiting+now.Moving == 0 && now.Dead == dead && maps.Equal(before.Counters, now.Counters)
	})
	return now
}

// letters are the dead letters of a route, whole.
func (s *suite) letters(execution, route string) []protocol.DeadLetter {
	s.Helper()
	page := ask[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: scope.ScopedName(execution, route)})
	whole := make([]protocol.DeadLetter, 0, len(page.Letters))
	for _, l := range page.Letters {
		whole = append(whole, ask[protocol.DeadLetter](s, protocol.SubjectDeadShow, protocol.DeadShowRequest{MessageID: l.MessageID}))
	}
	return whole
}

// awaitLetters waits for n dead letters.
func (s *suite) awaitLetters(route string, n int) []protocol.DeadLetter {
	s.Helper()
	s.await(route, "dead letters", func(q protocol.QueueInfo) bool { return q.Dead >= int64(n) })
	letters := s.letters(s.execution, route)
	if len(letters) != n {
		s.Fatalf("%d dead letters, want %d", len(letters), n)
	}
	return letters
}

// eventually waits until f is true.
func (s *suite) eventually(what string, f func() bool) {
	s.Helper()
	deadline := time.NewTimer(guard)
	defer deadline.Stop()
	for pause := look; !f(); pause = min(2*pause, rare) {
		select {
		case <-time.After(pause):
		case <-deadline.C:
			s.Fatalf("waited %v for %s", guard, what)
		}
	}
}

// unhurried tries with longer and longer times until one was long enough for what is to
// be seen meanwhile: on a machine that is slow, the first may be over before. Each try
// has a route of its own, and says whether it saw that.
func (s *suite) unhurried(what string, first time.Duration, try func(route string, wait time.Duration) (seen bool)) {
	s.Helper()
	const tries, longer = 3, 4
	wait := first
	for n := range tries {
		if try(fmt.Sprint("r", n), wait) {
			return
		}
		s.Logf("%s: %v were over before it was seen", what, wait)
		wait *= longer
	}
	s.Fatalf("never seen: %s", what)
}

// meanwhile waits until a queue is as f wants it, and says whether it was so before w
// had another delivery.
func (s *suite) meanwhile(w *worker, route, what string, f func(q protocol.QueueInfo) bool) (seen bool) {
	s.Helper()
	s.eventually(what, func() bool {
		seen = f(s.queue(s.execution, route))
		return seen || len(w.deliveries) > 0
	})
	return seen
}

// stays waits a moment, in which f must stay true.
func (s *suite) stays(what string, f func() bool) {
	s.Helper()
	end := time.NewTimer(quiet)
	defer end.Stop()
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		if !f() {
			s.Fatalf("it did not stay so: %s", what)
		}
		select {
		case <-t.C:
		case <-end.C:
			return
		}
	}
}

func equal[T comparable](s *suite, what string, got, want T) {
	s.Helper()
	if got != want {
		s.Errorf("%s: got %v, want %v", what, got, want)
	}
}
