package router_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

func TestQuotasStopPublishesOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", func(o *router.Options) { o.Limits = router.Limits{QueueMessages: 5} })
	for range 5 {
		f.published("r")
	}
	if _, refused := f.publish("r"); refused == nil || refused.Code != protocol.CodeQuotaExceeded {
		t.Fatalf("got %v", refused)
	}
	f.published("other") // which is below its limit
	p := f.program(queueOf("r"), nil)
	for i := range 5 {
		p.end(p.next(), []protocol.Outcome{protocol.Failed, protocol.Rejected, protocol.Acknowledged}[i%3])
	}
	f.empty("r")
	f.await("what failed", func() bool { return len(f.taken("retry")) == 2 && len(f.taken("dlq")) == 2 })
	f.published("r") // there is room again
}

func TestQuotaOfTheWholeMesh(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", func(o *router.Options) { o.Limits = router.Limits{TotalMessages: 10} })
	for i := range 6 {
		f.published("r" + strconv.Itoa(i))
	}
	body := []byte(`{"service":"dlq","instance":"dlq-a","messages":4}`)
	f.must(f.nc.Publish(protocol.SubjectLoad, body))
	f.await("the dead letters to be counted", func() bool {
		_, refused := f.publish("full")
		return refused != nil && refused.Code == protocol.CodeQuotaExceeded
	})
	p := f.program(queueOf("r0"), nil)
	p.end(p.next(), protocol.Acknowledged)
	f.await("room", func() bool {
		_, refused := f.publish("r0")
		return refused == nil
	})
}

func TestQuotaOfBytesCountsWhatIsBeingCommitted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", func(o *router.Options) { o.Limits = router.Limits{QueueBytes: 1 << 20} })
	const size, n = 100_000, 40
	inbox := nats.NewInbox()
	var stored, refused atomic.Int64
	_, err := f.nc.Subscribe(inbox, func(m *nats.Msg) {
		if protocol.ParseErrorBody(m.Data) != nil {
			refused.Add(1)
		} else {
			stored.Add(1)
		}
	})
	f.must(err)
	for range n {
		f.must(f.nc.PublishRequest(protocol.PublishQueueSubject("e1", "r"), inbox, make([]byte, size)))
	}
	f.await("answers", func() bool { return stored.Load()+refused.Load() == n })
	if stored.Load() != (1<<20)/size {
		t.Errorf("%d publishes of %d bytes were stored under a limit of 1 MiB", stored.Load(), size)
	}
}

func TestFailuresWaitWhileRetryIsAwayAndFreshFlow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deciding(nil)
	f.router("a", nil)
	p := f.program(queueOf("r"), func(s *protocol.Subscription) { s.Concurrency = 2 })
	for range 10 { // many more than the window
		f.published("r")
		p.end(p.next(), protocol.Failed)
	}
	f.published("r")
	p.end(p.next(), protocol.Acknowledged)
	f.await("the fresh one", func() bool { return f.queue("r").Counters[protocol.CountAcknowledged] == 1 })
	if q := f.queue("r"); q.Ready != 10 || q.Counters[protocol.CountFailed] != 0 {
		t.Errorf("while nobody decides: %+v", q)
	}
	f.deciding(retryAtOnce)
	f.await("the failures to go on", func() bool { return len(f.taken("retry")) == 10 })
	for _, m := range f.taken("retry") {
		if m.Attempt != 2 {
			t.Errorf("attempt %d", m.Attempt)
		}
	}
	if q := f.empty("r"); q.Counters[protocol.CountFailed] != 10 || q.Counters[protocol.CountRetried] != 10 {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestVerdictOfTheFutureReturnsTheMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deciding(func(i protocol.DecideItem) protocol.Decision {
		if i.Incomplete > 0 {
			return retryAtOnce(i)
		}
		return protocol.Decision{Verdict: "teleport", Attempt: i.Attempt, Incomplete: 1}
	})
	f.router("a", nil)
	p := f.program(queueOf("r"), nil)
	f.published("r")
	p.end(p.next(), protocol.Failed)
	m := p.next()
	if m.Header.Get(protocol.HeaderAttempt) != "1" {
		t.Errorf("attempt %s", m.Header.Get(protocol.HeaderAttempt))
	}
	p.end(m, protocol.Acknowledged)
	f.empty("r")
}

func TestStopWaitsForWorkInHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.router("a", func(o *router.Options) { o.Drain = guard })
	p := f.program(queueOf("r"), nil)
	f.published("r")
	m := p.next()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	f.await("publishes to be refused", func() bool {
		_, err := f.nc.Request(protocol.PublishQueueSubject("e1", "other"), nil, time.Second)
		return err != nil
	})
	p.end(m, protocol.Acknowledged)
	f.must(<-stopped)
	f.router("b", nil)
	if q := f.empty("r"); q.Counters[protocol.CountAcknowledged] != 1 || q.Counters[protocol.CountDelivered] != 1 {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.router("a", func(o *router.Options) { o.Drain = 50 * time.Millisecond })
	p := f.program(queueOf("r"), nil)
	f.published("r")
	m := p.next()
	f.must(s.Stop(context.Background()))
	if err := s.Err(); err != nil {
		t.Errorf("it says it failed: %v", err)
	}
	// The next owner learns that the handler runs, and takes its outcome.
	_, token, _ := protocol.SplitOutcome(m.Reply)
	p.claiming(&protocol.Claims{Running: []string{token}})
	f.router("b", nil)
	f.await("the handler to be known", func() bool { return f.queue("r").InFlight == 1 })
	p.end(m, protocol.Acknowledged)
	if q := f.empty("r"); q.Counters[protocol.CountDelivered] != 1 {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestWorkFinishedWhileNobodyOwnedTheLane(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.router("a", func(o *router.Options) { o.Drain = 50 * time.Millisecond })
	p := f.program(queueOf("r"), nil)
	var tokens []string
	for range 3 {
		f.published("r")
		_, token, _ := protocol.SplitOutcome(p.next().Reply)
		tokens = append(tokens, token)
	}
	f.must(s.Stop(context.Background()))
	p.claiming(&protocol.Claims{Finished: []protocol.FinishedWork{
		{Token: tokens[0], Outcome: protocol.Acknowledged},
		{Token: tokens[1], Outcome: protocol.Failed, Error: "no luck"},
		{Token: tokens[2], Outcome: protocol.Rejected},
		{Token: "forged", Outcome: protocol.Acknowledged},
	}})
	f.router("b", nil)
	q := f.empty("r")
	if q.Counters[protocol.CountAcknowledged] != 1 || q.Counters[protocol.CountFailed] != 1 ||
		q.Counters[protocol.CountRejected] != 1 || q.Counters[protocol.CountDelivered] != 3 {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestNewOwnerWaitsForSilentWorkersOnlySoLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.router("a", func(o *router.Options) { o.Drain = 50 * time.Millisecond })
	p := f.program(queueOf("r"), nil)
	f.published("r")
	p.next()
	f.must(s.Stop(context.Background()))
	p.claiming(nil)
	began := time.Now()
	f.router("b", nil)
	m := p.next()
	if waited := time.Since(began); waited < protocol.WorkerSilence/2 {
		t.Errorf("delivered again after %v, while its worker might run it", waited)
	}
	p.end(m, protocol.Acknowledged)
	f.empty("r")
}

func TestLostDeliveryIsSentAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	p := f.program(queueOf("r"), nil)
	f.published("r")
	lost := p.next() // the worker claims nothing: as if it had never come
	again := p.next()
	if again.Reply != lost.Reply || again.Header.Get(protocol.HeaderAttempt) != "1" {
		t.Errorf("sent again as %s, attempt %s", again.Reply, again.Header.Get(protocol.HeaderAttempt))
	}
	p.end(again, protocol.Acknowledged)
	f.empty("r")
}

func TestLostOutcomeIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	p := f.program(queueOf("r"), nil)
	f.published("r")
	_, token, _ := protocol.SplitOutcome(p.next().Reply)
	p.claiming(&protocol.Claims{Finished: []protocol.FinishedWork{{Token: token, Outcome: protocol.Acknowledged}}})
	if q := f.empty("r"); q.Counters[protocol.CountDelivered] != 1 || q.Counters[protocol.CountAcknowledged] != 1 {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestWorkerThatLeavesWithWorkInHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	p := f.program(queueOf("r"), nil)
	f.published("r")
	first := p.next()
	other := f.program(queueOf("r"), nil)
	p.leaves()
	second := other.next()
	if second.Header.Get(protocol.HeaderAttempt) != "1" {
		t.Errorf("attempt %s", second.Header.Get(protocol.HeaderAttempt))
	}
	p.end(first, protocol.Failed) // of a delivery that was taken back: no effect
	f.await("the old answer to be withheld", func() bool { return f.queue("r").Counters[protocol.CountSuperseded] == 1 })
	p.end(first, protocol.Acknowledged) // but what is done is done
	q := f.empty("r")
	if q.Counters[protocol.CountVanished] != 1 || q.Counters[protocol.CountAcknowledged] != 1 || q.Counters[protocol.CountFailed] != 0 {
		t.Errorf("counted %v", q.Counters)
	}
	other.end(second, protocol.Rejected)
	f.await("the second answer to be withheld", func() bool { return f.stats()[protocol.CountSuperseded] == 2 })
	if n := len(f.taken("dlq")); n != 0 {
		t.Errorf("%d dead letters of a message that was acknowledged", n)
	}
}

// stats are the counters of all routers.
func (f *fixture) stats() map[string]uint64 {
	f.Helper()
	all, err := mesh.Gather[protocol.Stats](f.guarded(), f.nc, protocol.SubjectStats, protocol.Empty{}, 100*time.Millisecond)
	f.must(err)
	sum := map[string]uint64{}
	for _, s := range all {
		for name, n := range s.Counters {
			sum[name] += n
		}
	}
	return sum
}

func TestTwoRoutersShareTheLanes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.router("a", nil)
	var programs []*program
	var ids sync.Map
	var repeated atomic.Int64
	for i := range 8 {
		p := f.program(queueOf("r"+strconv.Itoa(i)), nil)
		programs = append(programs, p)
		p.diligent(func(m *nats.Msg) {
			if _, seen := ids.LoadOrStore(m.Header.Get(protocol.HeaderMessageID), true); seen {
				repeated.Add(1)
			}
		})
	}
	want := f.publishAround(programs, 100)
	b := f.router("b", nil)
	f.await("the second to have its share", func() bool { return f.lanes("b") == 2 && f.lanes("a") == 2 })
	want = append(want, f.publishAround(programs, 100)...)
	f.must(b.Stop(context.Background()))
	f.await("the first to have all", func() bool { return f.lanes("a") == 4 })
	want = append(want, f.publishAround(programs, 100)...)
	f.must(a.Stop(context.Background()))
	f.router("c", nil)
	want = append(want, f.publishAround(programs, 100)...)
	for i := range programs {
		f.empty("r" + strconv.Itoa(i))
	}
	for _, id := range want {
		if _, ok := ids.Load(id); !ok {
			t.Errorf("message %s was never delivered", id)
		}
	}
	if n := repeated.Load(); n > 0 {
		t.Errorf("%d messages were run twice, with no worker lost", n)
	}
}

// publishAround publishes n messages over the programs' queues, through
// whichever router takes them, and returns their ids.
func (f *fixture) publishAround(programs []*program, n int) []string {
	f.Helper()
	var ids []string
	for i := range n {
		route := "r" + strconv.Itoa(i%len(programs))
		f.await("a publish to be taken", func() bool {
			ack, refused := f.tryPublish(route)
			if refused == nil {
				ids = append(ids, ack)
			}
			return refused == nil
		})
	}
	return ids
}

// tryPublish tolerates a lane that is moving.
func (f *fixture) tryPublish(route string) (string, error) {
	ack, err := mesh.Request[protocol.PublishAck](f.guarded(), f.nc, protocol.PublishQueueSubject("e1", route), "payload")
	if err != nil && protocol.CodeOf(err) != protocol.CodeUnavailable {
		f.Fatalf("publishing: %v", err)
	}
	return ack.MessageID, err
}

// lanes is the number of lanes a router owns.
func (f *fixture) lanes(instance string) int {
	f.Helper()
	all, err := mesh.Gather[protocol.Stats](f.guarded(), f.nc, protocol.SubjectStats, protocol.Empty{}, 100*time.Millisecond)
	f.must(err)
	i := slices.IndexFunc(all, func(s protocol.Stats) bool { return s.Instance == instance })
	if i < 0 {
		return 0
	}
	return int(all[i].Gauges["lanes"])
}

func TestBacklogIsReadAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.router("a", nil)
	const n = 2000
	for range n {
		f.must(f.nc.Publish(protocol.PublishQueueSubject("e1", "r"), []byte("x")))
	}
	f.await("the backlog", func() bool { return f.queue("r").Ready == n })
	f.must(s.Stop(context.Background())) // so that no body is in memory
	f.router("b", nil)
	p := f.program(queueOf("r"), func(s *protocol.Subscription) { s.Concurrency = 1 })
	for range n {
		p.end(p.next(), protocol.Acknowledged)
	}
	if q := f.empty("r"); q.Counters[protocol.CountAcknowledged] != n || q.Counters[protocol.CountDelivered] != n {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestQueuesAreListedInPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	for i := range 30 {
		f.published("r" + strconv.Itoa(i))
	}
	f.program(queueOf("waits"), nil) // a queue with nothing but a consumer
	f.await("the consumer", func() bool { return f.queue("waits").Consumers == 1 })
	var names []string
	for after, more := "", true; more; {
		page, err := mesh.Request[protocol.QueuesPage](f.guarded(), f.nc, protocol.SubjectQueues, protocol.QueuesRequest{Execution: "e1", After: after, Limit: 7})
		f.must(err)
		for _, q := range page.Queues {
			names = append(names, q.Queue)
			if q.Execution != "e1" || q.Route == "" {
				t.Errorf("%+v", q)
			}
		}
		after, more = names[len(names)-1], page.More
	}
	if len(names) != 31 || !slices.IsSorted(names) || len(slices.Compact(names)) != 31 {
		t.Errorf("%d queues: %v", len(names), names)
	}
	page, err := mesh.Request[protocol.QueuesPage](f.guarded(), f.nc, protocol.SubjectQueues, protocol.QueuesRequest{Execution: "other"})
	f.must(err)
	if len(page.Queues) != 0 {
		t.Errorf("another execution has %v", page.Queues)
	}
}

func TestReadySaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.await("the router to be ready", func() bool {
		r, err := mesh.Request[protocol.Ready](f.guarded(), f.nc, protocol.SubjectReady, protocol.Empty{})
		f.must(err)
		return r.Ready && len(r.Waiting) == 0
	})
}

func TestStartAndStopUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.program(queueOf("r"), nil)
	p.acknowledgeAll()
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				f.check(f.nc.Publish(protocol.PublishQueueSubject("e1", "r"), []byte("x")))
				f.check(f.nc.Flush())
			}
		}
	})
	for i := range 8 {
		s := f.router("r"+strconv.Itoa(i%2), func(o *router.Options) { o.Drain = time.Second })
		ctx, cancel := context.WithTimeout(context.Background(), guard)
		var stopping sync.WaitGroup
		for range 3 { // also more than once
			stopping.Go(func() { f.check(s.Stop(ctx)) })
		}
		stopping.Wait()
		cancel()
	}
	close(stop)
	publishing.Wait()
	f.router("last", nil)
	q := f.empty("r")
	if q.Counters[protocol.CountPublished] != q.Counters[protocol.CountAcknowledged] {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestStartWithoutNATSSaysWhere(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "nats://" + taken.Addr().String()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := router.New(router.Options{Mesh: mesh.ConnectOptions{URL: nobody}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := s.Start(ctx); protocol.CodeOf(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), nobody) {
		t.Errorf("got %v", err)
	}
	if _, err := router.New(router.Options{MaxPayload: -1}); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("got %v", err)
	}
}
