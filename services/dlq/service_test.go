package dlq_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/books/bookstest"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/dlq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, m *bookstest.Mesh, instance string) *dlq.Service {
	t.Helper()
	s, err := dlq.New(dlq.Options{
		Mesh: mesh.ConnectOptions{URL: m.URL}, Instance: instance, Version: "1.2.3", Logger: bookstest.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *dlq.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), meshtest.Patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

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

func request[R any](t *testing.T, m *bookstest.Mesh, subject string, q any) R {
	t.Helper()
	r, err := mesh.Request[R](meshtest.Context(t), m.Conn, subject, q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// epoch is when the letters of these tests begin to fail.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// dead is a letter that failed last at epoch + at.
func dead(queue string, at time.Duration) bookstest.Parcel {
	return bookstest.Parcel{
		Dest:    ledger.Name("dlq", ledger.Of(queue, 4)),
		Message: bookstest.Message([]byte("body"), map[string][]string{"x-own": {"value"}}),
		Meta: ledger.Meta{
			Queue: queue, Attempt: 3, FirstFailure: epoch.UnixNano(), LastFailure: epoch.Add(at).UnixNano(),
			Reason: protocol.ReasonFailed, Error: "because", Source: "sub:1",
		},
	}
}

func many(n, queues int) []bookstest.Parcel {
	var parcels []bookstest.Parcel
	for i := range n {
		// Failures arrive out of their order, and some at the same time.
		parcels = append(parcels, dead(queueOf(i%queues), time.Duration(i*7919%n/2)*time.Second))
	}
	return parcels
}

func queueOf(i int) string { return fmt.Sprintf("/queue/e%d/route.a", i) }

// listed reads all letters, page by page.
func listed(t *testing.T, m *bookstest.Mesh, queue string, limit int) []protocol.DeadLetter {
	t.Helper()
	var all []protocol.DeadLetter
	for {
		page := request[protocol.DeadPage](t, m, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: queue, Offset: len(all), Limit: limit})
		if len(page.Letters) == 0 {
			if int(page.Total) != len(all) {
				t.Fatalf("the pages have %d letters of %d", len(all), page.Total)
			}
			return all
		}
		all = append(all, page.Letters...)
	}
}

func count(t *testing.T, m *bookstest.Mesh) int64 {
	t.Helper()
	return request[protocol.DeadPage](t, m, protocol.SubjectDeadList, protocol.DeadListRequest{Limit: 1}).Total
}

func act(t *testing.T, m *bookstest.Mesh, subject string, q protocol.DeadActRequest) int64 {
	t.Helper()
	return request[protocol.DeadActReply](t, m, subject, q).Count
}

func TestShowsWhatWasHandedOver(t *testing.T) {
	m := running(t)
	headers := map[string][]string{"x-correlation-id": {"mine"}, "Ünicode": {"ä \t\x01"}, "empty": {""}}
	for name, body := range map[string][]byte{
		"empty": {}, "null": []byte("null"), "binary": {0, 255, 10, 13}, "large": bytes.Repeat([]byte{7}, 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			p := dead(queueOf(1), time.Hour)
			p.Message.Body, p.Message.Headers = body, headers
			p.Meta.Generation, p.Meta.Reason, p.Meta.Error = 2, protocol.ReasonTimeout, "line 1\nline 2"
			m.Hand(p)
			got := request[protocol.DeadLetter](t, m, protocol.SubjectDeadShow, protocol.DeadShowRequest{MessageID: p.Message.ID.String()})
			if !bytes.Equal(got.Payload, body) || !maps.EqualFunc(got.Headers, headers, slices.Equal) {
				t.Errorf("got %d bytes with headers %q, want %d with %q", len(got.Payload), got.Headers, len(body), headers)
			}
			got.Payload, got.Headers = nil, nil
			want := protocol.DeadLetter{
				MessageID: p.Message.ID.String(), Queue: queueOf(1), Execution: "e1", Route: "route.a", Source: "sub:1",
				Reason: protocol.ReasonTimeout, Error: "line 1\nline 2", Attempts: 3, Generation: 2,
				PublishedAt: time.Unix(0, p.Message.PublishedAt).UTC(), FirstFailure: epoch, LastFailure: epoch.Add(time.Hour),
				SizeBytes: len(body),
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestPagesHaveEachLetterOnceInOrder(t *testing.T) {
	m := running(t)
	const n = 120
	m.Hand(many(n, 7)...)
	for _, limit := range []int{0, 1, 7, 1000} {
		all := listed(t, m, "", limit)
		seen := map[string]bool{}
		for i, letter := range all {
			if seen[letter.MessageID] {
				t.Errorf("limit %d: %s is listed twice", limit, letter.MessageID)
			}
			seen[letter.MessageID] = true
			if i > 0 && letter.LastFailure.Before(all[i-1].LastFailure) {
				t.Errorf("limit %d: letter %d failed before the one in front of it", limit, i)
			}
			if letter.Payload != nil || letter.Headers != nil {
				t.Errorf("limit %d: a list has payload or headers", limit)
			}
		}
		if len(all) != n {
			t.Errorf("limit %d: %d letters, want %d", limit, len(all), n)
		}
	}
	of := listed(t, m, queueOf(3), 5)
	for _, letter := range of {
		if letter.Queue != queueOf(3) || letter.Error != "because" || letter.Attempts != 3 {
			t.Errorf("got %+v", letter)
		}
	}
	if len(of) != (n+6-3)/7 {
		t.Errorf("the queue has %d letters", len(of))
	}
	if none := listed(t, m, "/queue/e1/nothing.here", 0); len(none) != 0 {
		t.Errorf("an unknown queue has %d letters", len(none))
	}
}

func TestDeepPagesAreThoseOfTheWholeRow(t *testing.T) {
	m := running(t)
	const n = 3000
	m.Hand(many(n, 16)...)
	all := listed(t, m, "", 1000)
	if len(all) != n {
		t.Fatalf("%d letters, want %d", len(all), n)
	}
	for _, offset := range []int{999, 1000, 1001, 1500, 2222, 2990, 2999, 3000, 9999} {
		page := request[protocol.DeadPage](t, m, protocol.SubjectDeadList, protocol.DeadListRequest{Offset: offset, Limit: 20})
		want := all[min(offset, n):min(offset+20, n)]
		same := func(a, b protocol.DeadLetter) bool { return a.MessageID == b.MessageID }
		if !slices.EqualFunc(page.Letters, want, same) || page.Total != n {
			t.Errorf("offset %d: a page of %d other letters of %d", offset, len(page.Letters), page.Total)
		}
	}
}

func TestPagesStaySmall(t *testing.T) {
	m := running(t)
	parcels := many(300, 5)
	for i := range parcels {
		parcels[i].Meta.Error = strings.Repeat("\x01", protocol.MaxErrorText) // six bytes each in JSON
	}
	m.Hand(parcels...)
	answer, err := m.Conn.RequestWithContext(meshtest.Context(t), protocol.SubjectDeadList, []byte(`{"limit":1000}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Data) > 1<<20 {
		t.Errorf("a page has %d bytes", len(answer.Data))
	}
	if all := listed(t, m, "", 1000); len(all) != len(parcels) {
		t.Errorf("%d letters, want %d", len(all), len(parcels))
	}
}

func TestRedriveStartsOver(t *testing.T) {
	m := running(t)
	one := dead(queueOf(1), 0)
	one.Message.Body, one.Meta.Generation, one.Meta.Vanished, one.Meta.Incomplete = []byte{}, 4, 5, 6
	m.Hand(one, dead(queueOf(1), 1), dead(queueOf(2), 2))
	id := one.Message.ID.String()
	if n := act(t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: id}); n != 1 {
		t.Errorf("redrove %d, want 1", n)
	}
	got := m.Await(1)[0]
	if want := (ledger.Meta{Queue: queueOf(1), Generation: 5, Attempt: 1}); fmt.Sprint(got.Meta) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got.Meta, want)
	}
	if got.Message.ID != one.Message.ID || len(got.Message.Body) != 0 ||
		!maps.EqualFunc(got.Message.Headers, one.Message.Headers, slices.Equal) || got.Message.PublishedAt != one.Message.PublishedAt {
		t.Errorf("got %+v, want %+v", got.Message, one.Message)
	}
	for _, q := range []protocol.DeadActRequest{{MessageID: id}, {MessageID: "no-such-id"}, {Queue: "/queue/none/here"}} {
		if n := act(t, m, protocol.SubjectDeadRedrive, q); n != 0 {
			t.Errorf("%+v redrove %d, want 0", q, n)
		}
	}
	if n := act(t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: queueOf(2)}); n != 1 {
		t.Errorf("redrove %d of the queue, want 1", n)
	}
	if n := act(t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{All: true}); n != 1 {
		t.Errorf("redrove %d of all, want the one that was left", n)
	}
	m.Await(3)
	if n := count(t, m); n != 0 {
		t.Errorf("%d letters are left", n)
	}
	meshtest.Eventually(t, "counted, and nothing on its way", func() bool {
		stats := request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{})
		return stats.Counters[protocol.CountRedriven] == 3 && stats.Gauges["moving"] == 0 && stats.Gauges["dead"] == 0
	})
}

func TestDiscardForgets(t *testing.T) {
	m := running(t)
	one := dead(queueOf(1), 0)
	m.Hand(one, dead(queueOf(1), 1), dead(queueOf(2), 2), dead(queueOf(3), 3))
	id := one.Message.ID.String()
	for i, want := range []int64{1, 0} {
		if n := act(t, m, protocol.SubjectDeadDiscard, protocol.DeadActRequest{MessageID: id}); n != want {
			t.Errorf("discarding it, time %d: %d, want %d", i+1, n, want)
		}
	}
	_, err := mesh.Request[protocol.DeadLetter](meshtest.Context(t), m.Conn, protocol.SubjectDeadShow, protocol.DeadShowRequest{MessageID: id})
	if protocol.CodeOf(err) != protocol.CodeNotFound {
		t.Errorf("showing it: %v, want NOT_FOUND", err)
	}
	if n := act(t, m, protocol.SubjectDeadDiscard, protocol.DeadActRequest{Queue: queueOf(2)}); n != 1 {
		t.Errorf("discarded %d of the queue, want 1", n)
	}
	if n := act(t, m, protocol.SubjectDeadDiscard, protocol.DeadActRequest{All: true}); n != 2 {
		t.Errorf("discarded %d of all, want 2", n)
	}
	if n, back := count(t, m), len(m.Arrivals()); n != 0 || back != 0 {
		t.Errorf("%d letters are left and %d came back", n, back)
	}
	page := request[protocol.QueuesPage](t, m, protocol.SubjectDeadQueues, protocol.QueuesRequest{Queue: queueOf(1)})
	if len(page.Queues) != 1 || page.Queues[0].Counters[protocol.CountDiscarded] != 2 || page.Queues[0].Dead != 0 {
		t.Errorf("got %+v, want two discarded", page.Queues)
	}
}

// A message that several queues gave up has a letter in each, in whatever
// ledgers those are.
func TestLettersOfOneMessage(t *testing.T) {
	m := running(t)
	message := bookstest.Message([]byte("one body"), nil)
	for i := range 6 {
		p := dead(queueOf(i), time.Duration(i*5%6)*time.Hour) // the second failed last
		p.Message = message
		m.Hand(p)
	}
	id := message.ID.String()
	shown := func() string {
		return request[protocol.DeadLetter](t, m, protocol.SubjectDeadShow, protocol.DeadShowRequest{MessageID: id}).Queue
	}
	if got := shown(); got != queueOf(1) {
		t.Errorf("shown is the letter of %s, want that of %s, which failed last", got, queueOf(1))
	}
	if n := act(t, m, protocol.SubjectDeadDiscard, protocol.DeadActRequest{Queue: queueOf(1)}); n != 1 {
		t.Errorf("discarded %d of the queue, want 1", n)
	}
	if got := shown(); got != queueOf(2) {
		t.Errorf("shown is the letter of %s, want that of %s", got, queueOf(2))
	}
	if n := act(t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: id}); n != 5 {
		t.Errorf("redrove %d, want the 5 that are left", n)
	}
	back := map[string]bool{}
	for _, a := range m.Await(5) {
		back[a.Meta.Queue] = true
	}
	if len(back) != 5 || back[queueOf(1)] {
		t.Errorf("they came back to %v", back)
	}
}

func TestRefusesUnclearRequests(t *testing.T) {
	m := running(t)
	m.Hand(dead(queueOf(1), 0))
	for _, q := range []protocol.DeadActRequest{{}, {Queue: queueOf(1), All: true}, {MessageID: "x", Queue: "y", Topic: "z"}} {
		for _, subject := range []string{protocol.SubjectDeadRedrive, protocol.SubjectDeadDiscard} {
			_, err := mesh.Request[protocol.DeadActReply](meshtest.Context(t), m.Conn, subject, q)
			if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
				t.Errorf("%s %+v: got %v, want INVALID_ARGS", subject, q, err)
			}
		}
	}
	for _, q := range []protocol.DeadListRequest{{Offset: -1}, {Limit: -1}, {Limit: 1001}} {
		_, err := mesh.Request[protocol.DeadPage](meshtest.Context(t), m.Conn, protocol.SubjectDeadList, q)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%+v: got %v, want INVALID_ARGS", q, err)
		}
	}
	act := protocol.SubjectDeadLedger + ledger.Name("dlq", ledger.Of(queueOf(1), 4)) + ".act"
	_, err := mesh.Request[protocol.Empty](meshtest.Context(t), m.Conn, act, map[string]any{"action": "whatever", "limit": 9})
	if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("an action that is none: got %v, want INVALID_ARGS", err)
	}
	if n := count(t, m); n != 1 {
		t.Errorf("%d letters, want 1", n)
	}
}

// Two redrives and a discard of the same letters, at once.
func TestEachLetterGoesOneWay(t *testing.T) {
	m := running(t)
	const n = 2000
	m.Hand(many(n, 9)...)
	var (
		asked  sync.WaitGroup
		counts [3]int64
	)
	for i, subject := range []string{protocol.SubjectDeadRedrive, protocol.SubjectDeadRedrive, protocol.SubjectDeadDiscard} {
		asked.Go(func() {
			reply, err := mesh.Request[protocol.DeadActReply](meshtest.Context(t), m.Conn, subject, protocol.DeadActRequest{All: true})
			if err != nil {
				t.Error(err)
			}
			counts[i] = reply.Count
		})
	}
	asked.Wait()
	if counts[0]+counts[1]+counts[2] != n {
		t.Errorf("counted %v of %d", counts, n)
	}
	redriven := int(counts[0] + counts[1])
	seen := map[protocol.MessageID]bool{}
	for _, a := range m.Await(redriven) {
		seen[a.Message.ID] = true
	}
	meshtest.Eventually(t, "nothing is on its way", func() bool {
		return request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{}).Gauges["moving"] == 0
	})
	if back := len(m.Arrivals()); back != redriven || len(seen) != redriven {
		t.Errorf("%d came back, %d of them different, want %d", back, len(seen), redriven)
	}
}

// A redrive of letters that fail again at once, while it runs, takes those that
// were there and ends. Each comes back one generation later.
func TestRedriveIsBoundedByWhatWasThere(t *testing.T) {
	m := running(t)
	const n, rounds = 12, 3
	m.Hand(many(n, 4)...)
	for round := range rounds {
		redriven := make(chan int64, 1)
		go func() {
			reply, err := mesh.Request[protocol.DeadActReply](meshtest.Context(t), m.Conn, protocol.SubjectDeadRedrive, protocol.DeadActRequest{All: true})
			if err != nil {
				t.Error(err)
			}
			redriven <- reply.Count
		}()
		for failed := n * round; failed < n*(round+1); failed++ {
			back := m.Await(failed + 1)[failed]
			again := dead(back.Meta.Queue, time.Hour)
			again.Message, again.Meta.Generation = back.Message, back.Meta.Generation
			m.Hand(again)
		}
		if got := <-redriven; got != n {
			t.Errorf("round %d redrove %d, want the %d that were there", round, got, n)
		}
	}
	for _, letter := range listed(t, m, "", 1000) {
		if letter.Generation != rounds {
			t.Errorf("%s is of generation %d, want %d", letter.MessageID, letter.Generation, rounds)
		}
	}
}

func TestLettersOutliveTheService(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(4)
	s := start(t, m, "one")
	meshtest.Eventually(t, "ready", func() bool {
		return request[protocol.Ready](t, m, protocol.SubjectReady, protocol.Empty{}).Ready
	})
	m.Hand(many(60, 5)...)
	before := listed(t, m, "", 7)
	act(t, m, protocol.SubjectDeadDiscard, protocol.DeadActRequest{MessageID: before[10].MessageID})
	act(t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: before[20].MessageID})
	want := slices.Delete(slices.Delete(slices.Clone(before), 20, 21), 10, 11)
	stop(t, s)
	start(t, m, "one")
	after := listed(t, m, "", 7)
	if !slices.EqualFunc(after, want, func(a, b protocol.DeadLetter) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("%d letters before, %d after, or others", len(want), len(after))
	}
	m.Await(1)
}

func TestAnyInstanceAnswersForAll(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(4)
	first := start(t, m, "one")
	start(t, m, "two")
	meshtest.Eventually(t, "both have ledgers", func() bool {
		stats, err := mesh.Gather[protocol.Stats](meshtest.Context(t), m.Conn, protocol.SubjectStats, protocol.Empty{}, 0)
		return err == nil && len(stats) == 2 && stats[0].Gauges["ledgers"] == 2 && stats[1].Gauges["ledgers"] == 2
	})
	const n = 80
	m.Hand(many(n, 11)...)
	for range 6 { // by whichever of them
		if all := listed(t, m, "", 30); len(all) != n {
			t.Fatalf("%d letters, want %d", len(all), n)
		}
	}
	stop(t, first)
	if all := listed(t, m, "", 30); len(all) != n {
		t.Fatalf("with one instance gone: %d letters, want %d", len(all), n)
	}
	if got := act(t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{All: true}); got != n {
		t.Errorf("redrove %d, want %d", got, n)
	}
	m.Await(n)
}

// A second process under the same name takes the ledgers from the first, which
// is as good as a first that died without a word.
func TestTakenOverWhileRedriving(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(4)
	start(t, m, "one")
	const n = 3000
	m.Hand(many(n, 13)...)
	var redriving sync.WaitGroup
	redriving.Go(func() {
		// Its answer may be lost with the owner: what counts is what is there.
		_, err := mesh.Request[protocol.DeadActReply](meshtest.Context(t), m.Conn, protocol.SubjectDeadRedrive, protocol.DeadActRequest{All: true})
		if err != nil {
			t.Logf("the redrive that was cut off: %v", err)
		}
	})
	start(t, m, "one")
	redriving.Wait()
	meshtest.Eventually(t, "the rest is redriven", func() bool {
		_, err := mesh.Request[protocol.DeadActReply](meshtest.Context(t), m.Conn, protocol.SubjectDeadRedrive, protocol.DeadActRequest{All: true})
		return err == nil && len(m.Arrivals()) >= n
	})
	seen := map[protocol.MessageID]bool{}
	for _, a := range m.Arrivals() {
		if seen[a.Message.ID] {
			t.Errorf("%s came back twice", a.Message.ID)
		}
		seen[a.Message.ID] = true
	}
}

// What an instance asks of the owner of a ledger, as it is on the wire: an
// instance of another version asks it too.
func TestStepsAreBoundedByTheFirst(t *testing.T) {
	m := running(t)
	const n = 30
	m.Hand(many(n, 1)...)
	subject := protocol.SubjectDeadLedger + ledger.Name("dlq", ledger.Of(queueOf(0), 4)) + ".act"
	type done struct {
		Count int64  `json:"count"`
		Until uint64 `json:"until"`
		More  bool   `json:"more"`
	}
	total := int64(0)
	for until, more := uint64(0), true; more; {
		got := request[done](t, m, subject, map[string]any{"action": "discard", "queue": queueOf(0), "until": until, "limit": 7})
		if got.Count > 7 || until != 0 && got.Until != until {
			t.Fatalf("a step of 7 from %d: got %+v", until, got)
		}
		total += got.Count
		until, more = got.Until, got.More
		m.Hand(dead(queueOf(0), -time.Hour)) // it is the first in the row, and too late
	}
	if left := count(t, m); total != n || left != (n+6)/7 {
		t.Errorf("discarded %d and left %d, want %d and the %d that came meanwhile", total, left, n, (n+6)/7)
	}
}
