package router_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// closing tells every lane what the test's execution is, as the registry does,
// and says how many of its messages are left.
func (f *fixture) closing(q protocol.CloseRequest) (left, queues int64) {
	f.Helper()
	q.Execution = "e1"
	for i := range 4 {
		subject := protocol.SubjectLane + ledger.Name("router", i) + "." + protocol.VerbClose
		r, err := mesh.Request[protocol.CloseReply](f.guarded(), f.nc, subject, q)
		f.must(err)
		left, queues = left+r.Live, queues+r.Queues
	}
	return left, queues
}

// What a purge finds under way is dropped as soon as that is over: a delivery
// whose verdict is awaited goes nowhere, one in a handler's hands is superseded.
func TestPurgeAndWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deciding(nil)
	f.router("a", nil)
	p := f.program(queueOf("r"), func(s *protocol.Subscription) { s.Concurrency = 2 })
	f.published("r")
	p.end(p.next(), protocol.Failed)
	f.published("r")
	running := p.next()
	f.published("r")
	f.published("r")
	p.next()
	f.await("two in hand", func() bool { return f.queue("r").InFlight == 2 })
	purged := protocol.CloseRequest{State: protocol.ExecutionPurged}
	f.await("all but the one that is judged to be dropped", func() bool { left, _ := f.closing(purged); return left == 1 })
	p.end(running, protocol.Acknowledged)
	f.deciding(retryAtOnce)
	f.await("nothing to be left", func() bool { left, _ := f.closing(purged); return left == 0 })
	if went := f.taken("retry"); len(went) != 0 {
		t.Errorf("went to retry: %+v", went)
	}
	if q := f.queue("r"); q.Counters[protocol.CountDiscarded] != 4 || q.Counters[protocol.CountAcknowledged] != 0 {
		t.Errorf("counted %v", q.Counters)
	}
	if _, refused := f.publish("r"); refused == nil || refused.Code != protocol.CodeExecutionClosed {
		t.Errorf("publishing: got %v", refused)
	}
	f.closing(protocol.CloseRequest{State: protocol.ExecutionClosed, Forget: true})
	if _, queues := f.closing(purged); queues != 1 {
		t.Errorf("%d queues, want the one that is worked on", queues)
	}
	p.record.Subscriptions = nil
	f.tell(p.record)
	f.await("the queue to be forgotten", func() bool {
		_, queues := f.closing(protocol.CloseRequest{State: protocol.ExecutionClosed, Forget: true})
		return queues == 0
	})
	f.closing(protocol.CloseRequest{State: protocol.ExecutionOpen})
	f.published("r")
	if q := f.queue("r"); q.Ready != 1 {
		t.Errorf("reopened: %+v", q)
	}
}

// While nobody knows where scheduled messages wait, they wait here, and are
// neither early nor lost; once it is known, they go there.
func TestScheduledBeforeRetryWasEverStarted(t *testing.T) {
	t.Parallel()
	f := newFixtureAlone(t)
	s := f.router("a", nil)
	p := f.program(queueOf("r"), nil)
	schedule := func(in time.Duration) time.Time {
		due := time.Now().Add(in)
		m := nats.NewMsg(protocol.PublishQueueSubject("e1", "r"))
		m.Header.Set(protocol.HeaderDeliverAt, strconv.FormatInt(due.UnixMilli(), 10))
		answer, err := f.nc.RequestMsgWithContext(f.guarded(), m)
		f.must(err)
		if refused := protocol.ParseErrorBody(answer.Data); refused != nil {
			t.Fatal(refused)
		}
		return due.Truncate(time.Millisecond)
	}
	due := schedule(400 * time.Millisecond)
	m := p.next()
	if early := time.Until(due); early > 0 {
		t.Errorf("it came %v early", early)
	}
	p.end(m, protocol.Acknowledged)
	schedule(time.Hour)
	f.must(s.Stop(f.guarded()))
	f.router("b", nil)
	schedule(2 * time.Hour)
	f.keep("retry")
	f.keep("dlq")
	f.await("both to be sent away", func() bool { return len(f.taken("retry")) == 2 })
	for _, meta := range f.taken("retry") {
		if meta.Attempt != 1 || meta.Due == 0 {
			t.Errorf("sent away as %+v", meta)
		}
	}
	f.empty("r")
}
