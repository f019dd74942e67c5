package retry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/books/bookstest"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newService(t *testing.T, m *bookstest.Mesh, instance string) *retry.Service {
	t.Helper()
	s, err := retry.New(retry.Options{
		Mesh: mesh.ConnectOptions{URL: m.URL}, Instance: instance, Version: "1.2.3", Logger: bookstest.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t *testing.T, m *bookstest.Mesh, instance string) *retry.Service {
	t.Helper()
	s := newService(t, m, instance)
	if err := s.Start(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *retry.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), meshtest.Patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func request[R any](t *testing.T, m *bookstest.Mesh, subject string, q any) R {
	t.Helper()
	r, err := mesh.Request[R](meshtest.Context(t), m.Conn, subject, q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// waiting is a parcel that is due after a while.
func waiting(dest, queue string, after time.Duration) bookstest.Parcel {
	now := time.Now()
	return bookstest.Parcel{
		Dest:    dest,
		Message: bookstest.Message([]byte("body of "+queue), map[string][]string{"x-own": {"value"}}),
		Meta: ledger.Meta{
			Queue: queue, Attempt: 2, Vanished: 3, Incomplete: 4, Due: now.Add(after).UnixNano(),
			FirstFailure: now.UnixNano(), LastFailure: now.UnixNano(), Error: "because", Source: "sub",
		},
	}
}

func queueOf(i int) string { return fmt.Sprintf("/queue/e%d/route.a", i) }

func TestDecideAnswersABatchInOrder(t *testing.T) {
	m := bookstest.Start(t)
	start(t, m, "one")
	at := time.Now().UnixNano()
	q := protocol.DecideRequest{
		Verdicts: []protocol.Verdict{protocol.VerdictRetryAt, protocol.VerdictDeadLetter, protocol.VerdictReturn},
		Items: []protocol.DecideItem{
			{Outcome: protocol.Failed, At: at, Attempt: 1, MaxRetries: 2, BackoffMs: 100},
			{Outcome: protocol.Failed, At: at, Attempt: 2, MaxRetries: 2, BackoffMs: 100},
			{Outcome: protocol.Cancelled, At: at, Attempt: 2},
		},
	}
	got := request[protocol.DecideReply](t, m, protocol.SubjectDecide, q)
	want := []protocol.Decision{
		{Verdict: protocol.VerdictRetryAt, Attempt: 2, Due: at + int64(100*time.Millisecond)},
		{Verdict: protocol.VerdictDeadLetter, Attempt: 2, Reason: protocol.ReasonFailed},
		{Verdict: protocol.VerdictReturn, Attempt: 2},
	}
	if !slices.Equal(got.Items, want) {
		t.Errorf("got %+v, want %+v", got.Items, want)
	}
	if again := request[protocol.DecideReply](t, m, protocol.SubjectDecide, q); !slices.Equal(again.Items, want) {
		t.Errorf("asked again: got %+v, want %+v", again.Items, want)
	}
	q.Verdicts = []protocol.Verdict{protocol.VerdictSettle}
	_, err := mesh.Request[protocol.DecideReply](meshtest.Context(t), m.Conn, protocol.SubjectDecide, q)
	if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("an asker that can take nothing back: got %v, want INVALID_ARGS", err)
	}
}

func TestWaitsUntilDueAndComesBackWhole(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(2)
	start(t, m, "one")
	p := waiting("retry-00", queueOf(1), 300*time.Millisecond)
	p.Message.Body = []byte{0, 1, 2, 0xff}
	m.Hand(p)

	got := m.Await(1)[0]
	if early := time.Unix(0, p.Meta.Due).Sub(got.At); early > 0 {
		t.Errorf("it came %v early", early)
	}
	if got.Message.ID != p.Message.ID || !bytes.Equal(got.Message.Body, p.Message.Body) ||
		!maps.EqualFunc(got.Message.Headers, p.Message.Headers, slices.Equal) || got.Message.PublishedAt != p.Message.PublishedAt {
		t.Errorf("got message %+v, want %+v", got.Message, p.Message)
	}
	meta := got.Meta
	if meta.Due != 0 || meta.Attempt != 2 || meta.Vanished != 3 || meta.Incomplete != 4 ||
		meta.Queue != p.Meta.Queue || meta.FirstFailure != p.Meta.FirstFailure {
		t.Errorf("got meta %+v, want that of %+v, due at once", meta, p.Meta)
	}
}

func TestNoneOfManyIsEarlyOrLost(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(4)
	start(t, m, "one")
	const n = 600
	due := map[protocol.MessageID]int64{}
	var parcels []bookstest.Parcel
	for i := range n {
		p := waiting(ledger.Name("retry", i%4), queueOf(i%7), time.Duration(i*7919%1000)*time.Millisecond)
		due[p.Message.ID] = p.Meta.Due
		parcels = append(parcels, p)
	}
	m.Hand(parcels...)
	for _, a := range m.Await(n) {
		want, known := due[a.Message.ID]
		if !known {
			t.Fatalf("%s came back twice, or was never sent", a.Message.ID)
		}
		delete(due, a.Message.ID)
		if early := time.Duration(want - a.At.UnixNano()); early > 0 {
			t.Errorf("%s came %v early", a.Message.ID, early)
		}
	}
	meshtest.Eventually(t, "the shelves are empty", func() bool {
		stats := request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{})
		return stats.Gauges["waiting"] == 0 && stats.Gauges["moving"] == 0
	})
	if got := len(m.Arrivals()); got != n {
		t.Errorf("%d messages came back, want %d", got, n)
	}
}

func TestWhatWaitsOutlivesTheService(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(2)
	s := start(t, m, "one")
	soon, late := waiting("retry-00", queueOf(1), 50*time.Millisecond), waiting("retry-01", queueOf(2), time.Hour)
	later := waiting("retry-02", queueOf(3), 700*time.Millisecond)
	m.Hand(later, late)
	stop(t, s)
	start(t, m, "one")
	m.Hand(soon)
	due := map[protocol.MessageID]int64{soon.Message.ID: soon.Meta.Due, later.Message.ID: later.Meta.Due}
	for _, got := range m.Await(2) {
		at, awaited := due[got.Message.ID]
		if !awaited {
			t.Errorf("%s came, again or before its time", got.Message.ID)
		}
		delete(due, got.Message.ID)
		if early := time.Unix(0, at).Sub(got.At); early > 0 {
			t.Errorf("%s came %v early", got.Message.ID, early)
		}
	}
	meshtest.Eventually(t, "nothing is left but what waits for an hour", func() bool {
		page := request[protocol.QueuesPage](t, m, protocol.SubjectWaitingQueues, protocol.QueuesRequest{})
		return len(page.Queues) == 1 && page.Queues[0].Queue == queueOf(2) && page.Queues[0].Waiting == 1
	})
}

func TestAnotherInstanceGoesOn(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(2)
	first := start(t, m, "one")
	var parcels []bookstest.Parcel
	for i := range 40 {
		parcels = append(parcels, waiting(ledger.Name("retry", i%4), queueOf(i), 500*time.Millisecond))
	}
	m.Hand(parcels...)
	start(t, m, "two")
	stop(t, first)
	m.Await(len(parcels))
	meshtest.Eventually(t, "the other has it all", func() bool {
		stats := request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{})
		return stats.Gauges["ledgers"] == 4 && stats.Gauges["waiting"] == 0 && stats.Gauges["moving"] == 0
	})
	if got := len(m.Arrivals()); got != len(parcels) {
		t.Errorf("%d messages came back, want %d", got, len(parcels))
	}
}

// A second process under the same name takes the ledgers from the first, which
// is as good as a first that died without a word.
func TestTakenOverWithoutAWord(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(2)
	start(t, m, "one")
	var parcels []bookstest.Parcel
	for i := range 200 {
		parcels = append(parcels, waiting(ledger.Name("retry", i%4), queueOf(i), time.Duration(i*3)*time.Millisecond))
	}
	m.Hand(parcels...)
	start(t, m, "one")
	seen := map[protocol.MessageID]bool{}
	for _, a := range m.Await(len(parcels)) {
		if seen[a.Message.ID] {
			t.Errorf("%s came back twice", a.Message.ID)
		}
		seen[a.Message.ID] = true
	}
}

func TestTellsWhatItHolds(t *testing.T) {
	m := bookstest.Start(t)
	s := start(t, m, "one")
	ready := request[protocol.Ready](t, m, protocol.SubjectReady, protocol.Empty{})
	if ready.Ready || len(ready.Waiting) != 1 {
		t.Errorf("before a router has started: got %+v, want one reason", ready)
	}
	m.StartRouter(2)
	meshtest.Eventually(t, "ready", func() bool {
		return request[protocol.Ready](t, m, protocol.SubjectReady, protocol.Empty{}).Ready
	})

	loads, err := m.Conn.SubscribeSync(protocol.SubjectLoad)
	if err != nil {
		t.Fatal(err)
	}
	m.Hand(waiting("retry-00", queueOf(1), time.Hour), waiting("retry-01", queueOf(1), time.Hour), waiting("retry-01", queueOf(2), time.Hour))
	meshtest.Eventually(t, "a load of three messages", func() bool { return nextLoad(t, loads).Messages == 3 })

	page := request[protocol.QueuesPage](t, m, protocol.SubjectWaitingQueues, protocol.QueuesRequest{Execution: "e1"})
	if page.Instance != "one" || len(page.Queues) != 1 || page.More {
		t.Fatalf("got %+v, want one queue", page)
	}
	if q := page.Queues[0]; q.Queue != queueOf(1) || q.Execution != "e1" || q.Route != "route.a" || q.Waiting != 2 || q.Moving != 0 || q.Bytes == 0 {
		t.Errorf("got %+v, want what two ledgers have of the queue", q)
	}
	page = request[protocol.QueuesPage](t, m, protocol.SubjectWaitingQueues, protocol.QueuesRequest{Limit: 1})
	if len(page.Queues) != 1 || page.Queues[0].Queue != queueOf(1) || !page.More {
		t.Errorf("the first page: got %+v, want the first queue and more", page)
	}
	page = request[protocol.QueuesPage](t, m, protocol.SubjectWaitingQueues, protocol.QueuesRequest{Limit: 1, After: queueOf(1)})
	if len(page.Queues) != 1 || page.Queues[0].Queue != queueOf(2) || page.More {
		t.Errorf("after the first queue: got %+v", page)
	}
	stats := request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{})
	if stats.Service != "retry" || stats.Instance != "one" || stats.Version != "1.2.3" || stats.Gauges["waiting"] != 3 {
		t.Errorf("got %+v", stats)
	}
	stop(t, s)
	select {
	case <-s.Done():
		if s.Err() != nil {
			t.Errorf("it stopped with %v", s.Err())
		}
	default:
		t.Error("stopped, and not done")
	}
}

func nextLoad(t *testing.T, loads *nats.Subscription) (load protocol.Load) {
	t.Helper()
	msg, err := loads.NextMsgWithContext(meshtest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(msg.Data, &load); err != nil {
		t.Fatal(err)
	}
	return load
}

func TestStartsAndStopsInAnyOrder(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(1)
	for i := range 6 {
		s := newService(t, m, "one")
		var stops sync.WaitGroup
		for range 1 + i%2 {
			stops.Go(func() { stop(t, s) })
		}
		if err := s.Start(meshtest.Context(t)); err == nil {
			stop(t, s)
		}
		stops.Wait()
		if err := s.Start(meshtest.Context(t)); protocol.CodeOf(err) != protocol.CodeConflict {
			t.Errorf("a second start: got %v, want CONFLICT", err)
		}
	}
	for range 5 {
		s := newService(t, m, "one")
		if err := s.Start(meshtest.Context(t)); err != nil {
			t.Fatal(err)
		}
		stop(t, s)
	}
}

func TestRefusesWhatMakesNoSense(t *testing.T) {
	for _, o := range []retry.Options{{Instance: "a b"}, {Instance: "a.b"}, {Ledgers: -1}, {Bodies: -1}, {Replicas: -1}} {
		if _, err := retry.New(o); err == nil {
			t.Errorf("options %+v were taken", o)
		}
	}
	s, err := retry.New(retry.Options{Mesh: mesh.ConnectOptions{URL: "nats://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Start(ctx); protocol.CodeOf(err) != protocol.CodeUnavailable {
		t.Errorf("without NATS: got %v, want UNAVAILABLE", err)
	}
}
