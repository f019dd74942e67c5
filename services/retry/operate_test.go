package retry_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/books/bookstest"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func running(t *testing.T) *bookstest.Mesh {
	t.Helper()
	m := bookstest.Start(t)
	m.StartRouter(4)
	start(t, m, "one")
	meshtest.Eventually(t, "ready", func() bool {
		return request[protocol.Ready](t, m, protocol.SubjectReady, protocol.Empty{}).Ready
	})
	return m
}

// row are n parcels of some queues over all ledgers that are due an hour from
// now and later, in no order.
func row(n, queues int) []bookstest.Parcel {
	var parcels []bookstest.Parcel
	for i := range n {
		queue := queueOf(i % queues)
		parcels = append(parcels, waiting(ledger.Name("retry", i%4), queue, time.Hour+time.Duration(i*7919%n/2)*time.Second))
	}
	return parcels
}

// listed reads all pages.
func listed(t *testing.T, m *bookstest.Mesh, q protocol.WaitingListRequest) []protocol.WaitingMessage {
	t.Helper()
	var all []protocol.WaitingMessage
	for {
		page := request[protocol.WaitingPage](t, m, protocol.SubjectWaitingList, q)
		all = append(all, page.Messages...)
		if page.Next == "" {
			if int(page.Total) != len(all) {
				t.Fatalf("the pages have %d messages of %d", len(all), page.Total)
			}
			return all
		}
		q.After = page.Next
	}
}

func act(t *testing.T, m *bookstest.Mesh, subject string, q protocol.WaitingActRequest) int64 {
	t.Helper()
	return request[protocol.WaitingActReply](t, m, subject, q).Count
}

func TestListsWhatWaitsUntilWhenAndWhy(t *testing.T) {
	m := running(t)
	failed := waiting("retry-01", queueOf(1), time.Hour)
	failed.Meta.Error, failed.Meta.Generation = "line 1\nline 2", 2
	scheduled := waiting("retry-02", queueOf(2), 2*time.Hour)
	scheduled.Meta = ledger.Meta{Queue: queueOf(2), Attempt: 1, Due: scheduled.Meta.Due}
	m.Hand(scheduled, failed)
	got := listed(t, m, protocol.WaitingListRequest{})
	want := []protocol.WaitingMessage{
		{
			MessageID: failed.Message.ID.String(), Queue: queueOf(1), Execution: "e1", Route: "route.a", Attempt: 2, Generation: 2,
			Why: protocol.WaitsForRetry, Due: time.Unix(0, failed.Meta.Due).UTC(), Error: "line 1\nline 2", Source: "sub",
			PublishedAt: time.Unix(0, failed.Message.PublishedAt).UTC(), LastFailure: time.Unix(0, failed.Meta.LastFailure).UTC(),
			SizeBytes: len(failed.Message.Body),
		},
		{
			MessageID: scheduled.Message.ID.String(), Queue: queueOf(2), Execution: "e2", Route: "route.a", Attempt: 1,
			Why: protocol.WaitsForSchedule, Due: time.Unix(0, scheduled.Meta.Due).UTC(),
			PublishedAt: time.Unix(0, scheduled.Message.PublishedAt).UTC(), SizeBytes: len(scheduled.Message.Body),
		},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestPagesHaveEachMessageOnceInOrder(t *testing.T) {
	m := running(t)
	parcels := row(300, 7)
	m.Hand(parcels...)
	for _, c := range []struct {
		q    protocol.WaitingListRequest
		want func(p bookstest.Parcel) bool
	}{
		{protocol.WaitingListRequest{Limit: 7}, func(bookstest.Parcel) bool { return true }},
		{protocol.WaitingListRequest{Limit: 1000}, func(bookstest.Parcel) bool { return true }},
		{protocol.WaitingListRequest{Queue: queueOf(3), Limit: 10}, func(p bookstest.Parcel) bool { return p.Meta.Queue == queueOf(3) }},
		{protocol.WaitingListRequest{Execution: "e4"}, func(p bookstest.Parcel) bool { return p.Meta.Queue == queueOf(4) }},
	} {
		var want []string
		for _, p := range parcels {
			if c.want(p) {
				want = append(want, p.Message.ID.String())
			}
		}
		var got []string
		for _, w := range listed(t, m, c.q) {
			got = append(got, w.MessageID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %d messages, want %d, each once", c.q, len(got), len(want))
		}
	}
	due := time.Time{}
	for _, w := range listed(t, m, protocol.WaitingListRequest{Limit: 9}) {
		if w.Due.Before(due) {
			t.Errorf("%s is due before the one in front of it", w.MessageID)
		}
		due = w.Due
	}
}

func TestListPagesStaySmall(t *testing.T) {
	m := running(t)
	parcels := row(400, 1)
	for i := range parcels {
		parcels[i].Meta.Error = strings.Repeat("\x01", protocol.MaxErrorText)
	}
	m.Hand(parcels...)
	if got := len(listed(t, m, protocol.WaitingListRequest{Limit: 1000})); got != len(parcels) {
		t.Errorf("%d messages, want %d", got, len(parcels))
	}
}

func TestNowReleasesOneAQueueOrAll(t *testing.T) {
	m := running(t)
	parcels := row(60, 3)
	m.Hand(parcels...)
	one := parcels[4] // of queue 1
	if n := act(t, m, protocol.SubjectWaitingNow, protocol.WaitingActRequest{MessageID: one.Message.ID.String()}); n != 1 {
		t.Errorf("released %d, want the one", n)
	}
	got := m.Await(1)[0]
	if got.Message.ID != one.Message.ID || got.Meta.Attempt != 2 || got.Meta.Vanished != 3 || got.Meta.Due != 0 {
		t.Errorf("got %s %+v, want the message for its second attempt, at once", got.Message.ID, got.Meta)
	}
	if n := act(t, m, protocol.SubjectWaitingNow, protocol.WaitingActRequest{Queue: queueOf(1)}); n != 19 {
		t.Errorf("released %d of the queue, want 19", n)
	}
	if n := act(t, m, protocol.SubjectWaitingNow, protocol.WaitingActRequest{Execution: "e2"}); n != 20 {
		t.Errorf("released %d of the execution, want 20", n)
	}
	if n := act(t, m, protocol.SubjectWaitingNow, protocol.WaitingActRequest{All: true}); n != 20 {
		t.Errorf("released %d of all, want 20", n)
	}
	m.Await(60)
	if n := act(t, m, protocol.SubjectWaitingNow, protocol.WaitingActRequest{MessageID: one.Message.ID.String()}); n != 0 {
		t.Errorf("released %d that had left, want none", n)
	}
}

func TestCancelForgetsAndCounts(t *testing.T) {
	m := running(t)
	parcels := row(40, 2)
	soon := waiting("retry-00", queueOf(9), 700*time.Millisecond)
	m.Hand(append(parcels, soon)...)
	if n := act(t, m, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{MessageID: parcels[0].Message.ID.String()}); n != 1 {
		t.Errorf("cancelled %d, want the one", n)
	}
	if n := act(t, m, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: queueOf(1)}); n != 20 {
		t.Errorf("cancelled %d of the queue, want 20", n)
	}
	if n := act(t, m, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: queueOf(0)}); n != 19 {
		t.Errorf("cancelled %d of the queue, want 19", n)
	}
	if left := listed(t, m, protocol.WaitingListRequest{Execution: "e0"}); len(left) != 0 {
		t.Errorf("still waiting: %+v", left)
	}
	if got := m.Await(1); got[0].Message.ID != soon.Message.ID {
		t.Errorf("%s came, want the one that nobody cancelled", got[0].Message.ID)
	}
	meshtest.Eventually(t, "they are counted", func() bool {
		return request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{}).Counters[protocol.CountDiscarded] == 40
	})
}

// Two operators at once, and messages whose time comes meanwhile: each has one
// end.
func TestEachWaitingMessageGoesOneWay(t *testing.T) {
	m := running(t)
	const n = 600
	var parcels []bookstest.Parcel
	for i := range n {
		parcels = append(parcels, waiting(ledger.Name("retry", i%4), queueOf(i%5), time.Duration(i)*2*time.Millisecond))
	}
	m.Hand(parcels...)
	var counts [4]int64
	var operators sync.WaitGroup
	for i, subject := range []string{protocol.SubjectWaitingNow, protocol.SubjectWaitingCancel, protocol.SubjectWaitingNow, protocol.SubjectWaitingCancel} {
		operators.Go(func() {
			reply, err := mesh.Request[protocol.WaitingActReply](meshtest.Context(t), m.Conn, subject, protocol.WaitingActRequest{All: true})
			if err != nil {
				t.Error(err)
			}
			counts[i] = reply.Count
		})
	}
	operators.Wait()
	cancelled := int(counts[1] + counts[3])
	came := map[protocol.MessageID]bool{}
	for _, a := range m.Await(n - cancelled) {
		if came[a.Message.ID] {
			t.Errorf("%s came twice", a.Message.ID)
		}
		came[a.Message.ID] = true
	}
	meshtest.Eventually(t, "nothing waits", func() bool {
		stats := request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{})
		return stats.Gauges["waiting"] == 0 && stats.Gauges["moving"] == 0 && stats.Counters[protocol.CountDiscarded] == uint64(cancelled)
	})
	if got := len(m.Arrivals()); got != n-cancelled {
		t.Errorf("%d came and %d were cancelled of %d", got, cancelled, n)
	}
}

// The steps of one request leave alone what arrives after the first.
func TestWaitingStepsAreBoundedByTheFirst(t *testing.T) {
	m := running(t)
	const n = 30
	for range n {
		m.Hand(waiting("retry-02", queueOf(0), time.Hour))
	}
	type done struct {
		Count int64  `json:"count"`
		Until uint64 `json:"until"`
		More  bool   `json:"more"`
	}
	total := int64(0)
	for until, more := uint64(0), true; more; {
		got := request[done](t, m, protocol.SubjectWaitingLedger+"retry-02.act",
			map[string]any{"action": "cancel", "queue": queueOf(0), "until": until, "limit": 7})
		if got.Count > 7 || until != 0 && got.Until != until {
			t.Fatalf("a step of 7 from %d: got %+v", until, got)
		}
		total += got.Count
		until, more = got.Until, got.More
		m.Hand(waiting("retry-02", queueOf(0), time.Hour))
	}
	if left := len(listed(t, m, protocol.WaitingListRequest{})); total != n || left != (n+6)/7 {
		t.Errorf("cancelled %d and left %d, want %d and the %d that came meanwhile", total, left, n, (n+6)/7)
	}
}

func TestAnyRetryInstanceAnswersForAll(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(4)
	first := start(t, m, "one")
	start(t, m, "two")
	parcels := row(40, 4)
	m.Hand(parcels...)
	for range 6 { // requests go to either
		if got := len(listed(t, m, protocol.WaitingListRequest{Limit: 15})); got != 40 {
			t.Errorf("%d messages, want 40", got)
		}
	}
	if n := act(t, m, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: queueOf(1)}); n != 10 {
		t.Errorf("cancelled %d, want 10", n)
	}
	stop(t, first)
	if n := act(t, m, protocol.SubjectWaitingNow, protocol.WaitingActRequest{All: true}); n != 30 {
		t.Errorf("released %d, want 30", n)
	}
	m.Await(30)
}

func TestRefusesUnclearWaitingRequests(t *testing.T) {
	m := running(t)
	m.Hand(waiting("retry-00", queueOf(0), time.Hour))
	for _, subject := range []string{protocol.SubjectWaitingNow, protocol.SubjectWaitingCancel} {
		for _, q := range []protocol.WaitingActRequest{
			{}, {All: true, Queue: queueOf(0)}, {MessageID: "x", All: true}, {Queue: queueOf(0), Execution: "e0"},
		} {
			_, err := mesh.Request[protocol.WaitingActReply](meshtest.Context(t), m.Conn, subject, q)
			if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
				t.Errorf("%+v: got %v, want INVALID_ARGS", q, err)
			}
		}
		for _, q := range []protocol.WaitingActRequest{{MessageID: "no id"}, {Queue: "/queue/>/*"}, {Execution: "*"}, {Execution: "e"}} {
			if n := act(t, m, subject, q); n != 0 {
				t.Errorf("%+v: acted on %d", q, n)
			}
		}
	}
	for _, q := range []protocol.WaitingListRequest{{Limit: -1}, {Limit: 1001}, {After: "x"}, {After: "1.x"}} {
		_, err := mesh.Request[protocol.WaitingPage](meshtest.Context(t), m.Conn, protocol.SubjectWaitingList, q)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%+v: got %v, want INVALID_ARGS", q, err)
		}
	}
	if got := len(listed(t, m, protocol.WaitingListRequest{})); got != 1 {
		t.Errorf("%d wait, want the one", got)
	}
}

// What comes in at the subject of one ledger is no better than what comes from
// people: nothing of it ends the service, or does what was not said.
func TestTheOwnerOfALedgerTakesNothingOnTrust(t *testing.T) {
	m := running(t)
	for i := range 3 {
		m.Hand(waiting("retry-01", queueOf(i), time.Hour))
	}
	subject := protocol.SubjectWaitingLedger + "retry-01."
	for _, limit := range []int{-1, 0, 1, math.MinInt, math.MaxInt} {
		page := request[struct{ Messages []any }](t, m, subject+"list", map[string]any{"limit": limit})
		if n := len(page.Messages); n == 0 || n > 3 {
			t.Errorf("limit %d: got %d messages of 3", limit, n)
		}
	}
	for verb, bodies := range map[string][]any{
		"act": {map[string]any{}, map[string]any{"action": "redrive", "limit": 9}},
		protocol.VerbClose: {
			protocol.CloseRequest{}, protocol.CloseRequest{State: protocol.ExecutionPurged},
			protocol.CloseRequest{Execution: "a/b", State: protocol.ExecutionClosed}, protocol.CloseRequest{Execution: "e0", State: "whatever"},
		},
	} {
		for _, body := range bodies {
			_, err := mesh.Request[protocol.Empty](meshtest.Context(t), m.Conn, subject+verb, body)
			if code := protocol.CodeOf(err); code != protocol.CodeInvalidArgs && code != protocol.CodeInvalidName {
				t.Errorf("%s %+v: got %v, want a refusal", verb, body, err)
			}
		}
	}
	if got := len(listed(t, m, protocol.WaitingListRequest{})); got != 3 {
		t.Errorf("%d wait, want all 3", got)
	}
}
