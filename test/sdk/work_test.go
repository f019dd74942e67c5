package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestWhatAHandlerReturnsIsTheOutcome(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	handlers := map[string]func(context.Context) error{
		"nil":     func(context.Context) error { return nil },
		"error":   func(context.Context) error { return errors.New("no disk") },
		"reject":  func(context.Context) error { return fmt.Errorf("parse: %w", client.Reject(errors.New("no Go"))) },
		"reject0": func(context.Context) error { return client.Reject(nil) },
		"panic":   func(context.Context) error { panic("boom") },
		"after":   func(context.Context) error { return client.RetryAfter(errors.New("busy"), 1500*time.Microsecond) },
		"exit":    func(context.Context) error { runtime.Goexit(); return nil },
		"late":    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"cancel":  func(context.Context) error { return context.Canceled }, // its own, not ours
	}
	w := s.work(s.connect(), func(ctx context.Context, d *client.Delivery) error { return handlers[string(d.Data)](ctx) })
	for name, want := range map[string]struct {
		outcome protocol.Outcome
		text    string
	}{
		"nil":     {protocol.Acknowledged, ""},
		"error":   {protocol.Failed, "no disk"},
		"reject":  {protocol.Rejected, "parse: no Go"},
		"reject0": {protocol.Rejected, "rejected"},
		"panic":   {protocol.Failed, "panic: boom\ngoroutine"},
		"exit":    {protocol.Failed, "Goexit"},
		"after":   {protocol.Failed, "busy"},
		"late":    {protocol.Failed, "timeout_ms"},
		"cancel":  {protocol.Failed, "context canceled"},
	} {
		limit := guard
		if name == "late" {
			limit = 300 * time.Millisecond
		}
		s.deliver(w, delivery{lane: "lane", token: name, data: name, timeout: limit})
		got := receive(t, told)
		wantOutcome(t, got, name, want.outcome)
		if !strings.Contains(string(got.Data), want.text) {
			t.Errorf("%s: error text %q, want %q in it", name, got.Data, want.text)
		}
		if after := got.Header.Get(protocol.HeaderRetryAfter); (after == "2") != (name == "after") {
			t.Errorf("%s: not again before %q ms", name, after)
		}
	}
}

// What a handler returns is the only way to settle: there is no method to do it
// by hand, early or twice.
func TestADeliveryHasNothingToSettleItWith(t *testing.T) {
	var methods []string
	for method := range reflect.TypeFor[*client.Delivery]().Methods() {
		methods = append(methods, method.Name)
	}
	if want := []string{"Header", "Headers"}; !slices.Equal(methods, want) {
		t.Errorf("a delivery has the methods %v, want %v", methods, want)
	}
}

func TestALongErrorTextIsCutAtARune(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	w := s.work(s.connect(), func(context.Context, *client.Delivery) error {
		return errors.New("x" + strings.Repeat("ä", protocol.MaxErrorText) + "\xff")
	})
	s.deliver(w, delivery{lane: "lane", token: "t"})
	got := string(receive(t, told).Data)
	if len(got) > protocol.MaxErrorText || len(got) < protocol.MaxErrorText-1 || strings.ToValidUTF8(got, "") != got {
		t.Fatalf("%d bytes, ends %q", len(got), got[len(got)-4:])
	}
}

func TestADeliverySaysWhatItIs(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	type view struct {
		client.Delivery
		headers map[string]string
		trace   trace.SpanContext
	}
	views := make(chan view, 1)
	w := s.work(s.connect(), func(ctx context.Context, d *client.Delivery) error {
		views <- view{
			client.Delivery{ID: d.ID, Execution: d.Execution, Route: d.Route, Attempt: d.Attempt, MaxRetries: d.MaxRetries, Generation: d.Generation, Data: d.Data},
			d.Headers(), trace.SpanContextFromContext(ctx),
		}
		return nil
	})
	s.deliver(w, delivery{lane: "lane", token: "t", attempt: 2, data: "\x00\xff", headers: map[string]string{
		"X-Own": "ä b", "x-correlation-id": "c", protocol.HeaderGeneration: "4",
		protocol.HeaderTraceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}})
	receive(t, told)
	got := receive(t, views)
	want := client.Delivery{ID: "0199-t", Execution: "run", Route: "step", Attempt: 2, MaxRetries: 3, Generation: 4, Data: []byte("\x00\xff")}
	if fmt.Sprint(&got.Delivery) != fmt.Sprint(&want) {
		t.Errorf("delivery %+v, want %+v", &got.Delivery, &want)
	}
	if len(got.headers) != 3 || got.headers["X-Own"] != "ä b" || got.headers["x-correlation-id"] != "c" {
		t.Errorf("headers %v", got.headers)
	}
	if got.trace.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || !got.trace.IsRemote() {
		t.Errorf("trace %v", got.trace)
	}
}

func TestConcurrencyIsNeverExceededNorWasted(t *testing.T) {
	const limit, jobs = 5, 200
	s := startStandIn(t)
	told := s.outcomes("lane")
	var running, most atomic.Int32
	var all sync.WaitGroup // releases a full house only, so that fewer would hang
	all.Add(limit)
	w := s.work(s.connect(), func(_ context.Context, d *client.Delivery) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		if string(d.Data) == "first" {
			all.Done()
			all.Wait()
		}
		return nil
	}, client.Concurrency(limit))
	for i := range jobs {
		data := ""
		if i < limit {
			data = "first"
		}
		s.deliver(w, delivery{lane: "lane", token: token(i), data: data})
	}
	for range jobs {
		receive(t, told)
	}
	if most.Load() != limit {
		t.Fatalf("%d at once, want %d", most.Load(), limit)
	}
}

// A handler that ignores its deadline must not keep the next one out: the
// router has already given its place to another message.
func TestAnOverdueHandlerNoLongerCounts(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	begun, release := make(chan struct{}, 1), make(chan struct{})
	w := s.work(s.connect(), func(_ context.Context, d *client.Delivery) error {
		if string(d.Data) == "stuck" {
			begun <- struct{}{}
			<-release
		}
		return nil
	}, client.Concurrency(1))
	s.deliver(w, delivery{lane: "lane", token: "a", data: "stuck", timeout: time.Second})
	receive(t, begun)
	s.deliver(w, delivery{lane: "lane", token: "b", timeout: guard})
	wantOutcome(t, receive(t, told), "b", protocol.Acknowledged)
	close(release)
	wantOutcome(t, receive(t, told), "a", protocol.Acknowledged) // late: the router's to judge
}

// What waited behind busy handlers beyond its time limit does not run: the
// router has counted its timeout and may have sent it elsewhere.
func TestWhatIsOverdueBeforeItBeginsDoesNotRun(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	begun := make(chan string, 10)
	release := make(chan struct{})
	w := s.work(s.connect(), func(_ context.Context, d *client.Delivery) error {
		begun <- string(d.Data)
		<-release
		return nil
	}, client.Concurrency(1))
	s.deliver(w, delivery{lane: "lane", token: "a", data: "a"})
	receive(t, begun)
	s.deliver(w, delivery{lane: "lane", token: "b", data: "b", timeout: time.Millisecond})
	s.deliver(w, delivery{lane: "lane", token: "c", data: "c"})
	s.flush()
	probe(t, s) // it has arrived
	passes(2 * time.Millisecond)
	close(release)
	if got := receive(t, begun); got != "c" {
		t.Fatalf("%s ran", got)
	}
	wantOutcome(t, receive(t, told), "a", protocol.Acknowledged)
	wantOutcome(t, receive(t, told), "c", protocol.Acknowledged)
}

// passes returns when that much time has passed.
func passes(d time.Duration) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	<-tick.C
}

func TestADeliveryThatComesTwiceRunsOnce(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	var runs atomic.Int32
	release := make(chan struct{})
	w := s.work(s.connect(), func(context.Context, *client.Delivery) error {
		runs.Add(1)
		<-release
		return errors.New("no disk")
	})
	d := delivery{lane: "lane", token: "t"}
	s.deliver(w, d)
	s.deliver(w, d) // while it runs: nothing
	close(release)
	wantOutcome(t, receive(t, told), "t", protocol.Failed)
	s.deliver(w, d) // when it has ended: the same answer
	again := receive(t, told)
	wantOutcome(t, again, "t", protocol.Failed)
	if runs.Load() != 1 || string(again.Data) != "no disk" {
		t.Fatalf("%d runs, answer %q", runs.Load(), again.Data)
	}
}

func TestAFormerOwnersDeliveryIsIgnored(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("*")
	w := s.work(s.connect(), func(context.Context, *client.Delivery) error { return nil })
	s.deliver(w, delivery{lane: "lane", token: "a", epoch: 7})
	s.deliver(w, delivery{lane: "lane", token: "b", epoch: 6})
	s.deliver(w, delivery{lane: "other", token: "c", epoch: 1})
	s.deliver(w, delivery{lane: "lane", token: "d", epoch: 8})
	got := map[string]bool{}
	for range 3 {
		_, token, _ := protocol.SplitOutcome(receive(t, told).Subject)
		got[token] = true
	}
	if !got["a"] || !got["c"] || !got["d"] {
		t.Fatalf("outcomes of %v", got)
	}
	s.nothing(told)
}

func TestClaimsSayWhatRunsAndWhatEnded(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("*")
	release, begun := make(chan struct{}), make(chan struct{}, 2)
	w := s.work(s.connect(), func(_ context.Context, d *client.Delivery) error {
		if string(d.Data) == "long" {
			begun <- struct{}{}
			<-release
		}
		return errors.New("no disk")
	})
	h := until(t, s.hellos, func(protocol.Hello) bool { return true })
	s.deliver(w, delivery{lane: "lane", token: "ended"})
	receive(t, told)
	s.deliver(w, delivery{lane: "lane", token: "runs", data: "long"})
	s.deliver(w, delivery{lane: "other", token: "elsewhere", data: "long"})
	receive(t, begun)
	receive(t, begun)
	q, _ := json.Marshal(protocol.ClaimsRequest{Lane: "lane", Epoch: 3})
	answer, err := s.nc.Request(protocol.WorkerSubject(h.WorkerID, protocol.VerbClaims), q, guard)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"running":["runs"],"finished":[{"token":"ended","outcome":"failed","error":"no disk"}]}`
	if string(answer.Data) != want {
		t.Fatalf("claims %s, want %s", answer.Data, want)
	}
	// The owner that asked has epoch 3; an older one is refused from now on.
	s.deliver(w, delivery{lane: "lane", token: "old", epoch: 2})
	if _, err := s.nc.Request(protocol.WorkerSubject(h.WorkerID, protocol.VerbProbe), nil, guard); err != nil {
		t.Fatal(err)
	}
	close(release)
	receive(t, told)
	receive(t, told)
	s.nothing(told)
}

func TestAnUnknownWorkerSaysHelloAgain(t *testing.T) {
	s := startStandIn(t)
	s.work(s.connect(client.Name("me")), func(context.Context, *client.Delivery) error { return nil }, client.Name("mine"), client.MaxRetries(5), client.Backoff(time.Minute), client.Timeout(time.Hour))
	first := receive(t, s.hellos)
	beat := receive(t, s.beats)
	s.respond(beat, protocol.KeepaliveReply{Known: true})
	s.respond(receive(t, s.beats), protocol.KeepaliveReply{Known: false})
	second := receive(t, s.hellos)
	if second.WorkerID != first.WorkerID || len(first.WorkerID) != 22 || second.Revision <= first.Revision || second.Name != "me" {
		t.Fatalf("first %+v, second %+v", first, second)
	}
	spec := second.Subscriptions[0]
	if spec.Concurrency != nil || spec.MaxRetries != 5 || spec.BackoffMs != 60_000 || spec.TimeoutMs != 3_600_000 || spec.Name != "mine" {
		t.Fatalf("subscription %+v", spec)
	}
}

func TestARefusedRegistrationLeavesTheOthers(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	handler := func(context.Context, *client.Delivery) error { return nil }
	s.work(c, handler)
	receive(t, s.hellos)
	s.judging(func(protocol.Hello) *protocol.Error { return protocol.Errorf(protocol.CodeConflict, "no more") })
	_, err := c.Work(t.Context(), "run", "other", handler)
	wantCode(t, err, protocol.CodeConflict)
	s.judging(nil)
	h := receive(t, s.hellos) // declared again by itself
	if len(h.Subscriptions) != 1 || h.Subscriptions[0].Route != "step" {
		t.Fatalf("declared %+v", h.Subscriptions)
	}
}

func TestBadWorkIsRefusedWithoutTheMesh(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	handler := func(context.Context, *client.Delivery) error { return nil }
	for _, execution := range []string{"", "*", ">", "a.b", "a b", strings.Repeat("x", 65)} {
		_, err := c.Work(t.Context(), execution, "step", handler)
		wantCode(t, err, protocol.CodeInvalidName)
	}
	for _, opt := range []client.WorkOption{client.Concurrency(-1), client.MaxRetries(0), client.Backoff(0), client.Timeout(time.Microsecond), client.Name(""),
		client.OnDeadLetter(""), client.OnDeadLetter("explode"), client.MaxPriority(0), client.MaxPriority(256)} {
		_, err := c.Work(t.Context(), "run", "step", handler, opt)
		wantCode(t, err, protocol.CodeInvalidArgs)
	}
	_, err := c.Work(t.Context(), "run", "step", nil)
	wantCode(t, err, protocol.CodeInvalidArgs)
	if len(s.hellos) != 0 {
		t.Fatal("the registry was asked")
	}
}

func TestAWarningAt80PercentNamesTheSetting(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	logs := make(lines, 64)
	c := s.connect(client.Logger(slog.New(slog.NewTextHandler(logs, nil))))
	w := s.work(c, func(ctx context.Context, d *client.Delivery) error {
		if string(d.Data) == "slow" {
			until(t, logs, func(line string) bool {
				return strings.Contains(line, "80 %") && strings.Contains(line, "timeout_ms") && strings.Contains(line, d.ID)
			})
			return nil
		}
		return ctx.Err()
	})
	s.deliver(w, delivery{lane: "lane", token: "quick", timeout: time.Hour})
	wantOutcome(t, receive(t, told), "quick", protocol.Acknowledged)
	s.deliver(w, delivery{lane: "lane", token: "slow", data: "slow", timeout: 2 * time.Second})
	wantOutcome(t, receive(t, told), "slow", protocol.Acknowledged)
}

// lines is a log's lines.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func TestStopLetsHandlersFinishAndHandsBackTheRest(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	release, begun := make(chan struct{}), make(chan struct{}, 1)
	w := s.work(s.connect(), func(ctx context.Context, _ *client.Delivery) error {
		begun <- struct{}{}
		<-release
		return ctx.Err() // not cancelled within the window
	}, client.Concurrency(1))
	s.deliver(w, delivery{lane: "lane", token: "a"})
	receive(t, begun)
	s.deliver(w, delivery{lane: "lane", token: "b"})
	s.flush()
	probe(t, s)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(context.Background()) }()
	draining := until(t, s.hellos, func(h protocol.Hello) bool { return h.Subscriptions[0].Draining })
	wantOutcome(t, receive(t, told), "b", protocol.Cancelled)
	s.deliver(w, delivery{lane: "lane", token: "c"}) // crossed the announcement
	wantOutcome(t, receive(t, told), "c", protocol.Cancelled)
	close(release)
	wantOutcome(t, receive(t, told), "a", protocol.Acknowledged)
	if err := receive(t, stopped); err != nil {
		t.Fatal(err)
	}
	gone := receive(t, s.hellos)
	if len(gone.Subscriptions) != 0 || gone.Revision <= draining.Revision {
		t.Fatalf("declared %+v", gone)
	}
	if err := w.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// A message that was handed back comes again as the very same delivery, perhaps
// to another worker of the same client.
func TestWhatWasHandedBackRunsWhenItComesAgain(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	c := s.connect(client.DrainWindow(0))
	begun := make(chan struct{}, 1)
	w := s.work(c, func(ctx context.Context, _ *client.Delivery) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	s.deliver(w, delivery{lane: "lane", token: "t"})
	receive(t, begun)
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, receive(t, told), "t", protocol.Cancelled)
	w = s.work(c, func(context.Context, *client.Delivery) error { return nil })
	s.deliver(w, delivery{lane: "lane", token: "t"})
	wantOutcome(t, receive(t, told), "t", protocol.Acknowledged)
	s.deliver(w, delivery{lane: "lane", token: "t"})
	wantOutcome(t, receive(t, told), "t", protocol.Acknowledged)
	h := until(t, s.hellos, func(protocol.Hello) bool { return true })
	q, _ := json.Marshal(protocol.ClaimsRequest{Lane: "lane", Epoch: 1})
	answer, err := s.nc.Request(protocol.WorkerSubject(h.WorkerID, protocol.VerbClaims), q, guard)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"finished":[{"token":"t","outcome":"acknowledged"}]}`; string(answer.Data) != want {
		t.Fatalf("claims %s, want %s", answer.Data, want)
	}
}

// probe returns when the client has taken what was sent before.
func probe(t *testing.T, s *standIn) {
	t.Helper()
	beat := receive(t, s.beats)
	id := strings.TrimPrefix(beat.Subject, protocol.SubjectKeepalive)
	if _, err := s.nc.Request(protocol.WorkerSubject(id, protocol.VerbProbe), nil, guard); err != nil {
		t.Fatal(err)
	}
}

func TestAfterTheWindowHandlersAreCancelledAndHandedBackUnspent(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	begun, stuck := make(chan struct{}, 4), make(chan struct{})
	c := s.connect(client.DrainWindow(50 * time.Millisecond))
	w := s.work(c, func(ctx context.Context, d *client.Delivery) error {
		begun <- struct{}{}
		<-ctx.Done()
		switch string(d.Data) {
		case "heeds":
			return fmt.Errorf("copying: %w", ctx.Err())
		case "finishes":
			return nil
		case "fails":
			return errors.New("no disk")
		default:
			<-stuck
			return errors.New("too late")
		}
	})
	for _, d := range []string{"heeds", "finishes", "fails", "ignores"} {
		s.deliver(w, delivery{lane: "lane", token: d, data: d})
		receive(t, begun)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := c.Close(ctx)
	wantCode(t, err, protocol.CodeTimeout)
	got := map[string]protocol.Outcome{}
	for range 4 {
		m := receive(t, told)
		_, token, _ := protocol.SplitOutcome(m.Subject)
		got[token] = outcome(m)
	}
	want := map[string]protocol.Outcome{"heeds": protocol.Cancelled, "finishes": protocol.Acknowledged, "fails": protocol.Failed, "ignores": protocol.Cancelled}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("outcomes %v, want %v", got, want)
	}
	if h := receive(t, s.byes); h.WorkerID == "" {
		t.Fatal("no goodbye")
	}
	close(stuck)
	s.nothing(told)
}

func TestOutcomesOfALostConnectionAreToldAgain(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	told := s.outcomes("lane")
	begun, release := make(chan struct{}, 1), make(chan struct{})
	w := s.work(c, func(context.Context, *client.Delivery) error {
		begun <- struct{}{}
		<-release
		return client.Reject(errors.New("no Go"))
	})
	s.deliver(w, delivery{lane: "lane", token: "t"})
	receive(t, begun)
	s.cut()
	close(release)
	wantOutcome(t, receive(t, told), "t", protocol.Rejected)
	h := until(t, s.hellos, func(h protocol.Hello) bool { return h.Revision > 1 })
	if len(h.Subscriptions) != 1 {
		t.Fatalf("declared %+v", h)
	}
	if err := w.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// workAll registers many routes at once, all of them before the first declaration is
// answered, and returns their errors by route.
func (s *standIn) workAll(c *client.Client, routes []string) map[string]error {
	var all, begun sync.WaitGroup
	begun.Add(len(routes))
	s.judgingAfter(&begun)
	var mu sync.Mutex
	errs := make(map[string]error)
	for _, route := range routes {
		all.Go(func() {
			begun.Done()
			_, err := c.Work(s.t.Context(), "run", route, func(context.Context, *client.Delivery) error { return nil })
			mu.Lock()
			defer mu.Unlock()
			errs[route] = err
		})
	}
	all.Wait()
	return errs
}

func routes(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("r%d", i)
	}
	return all
}

func TestWhoWorksOnManyRoutesSaysHelloAFewTimes(t *testing.T) {
	s := startStandIn(t)
	const n = 300
	for route, err := range s.workAll(s.connect(), routes(n)) {
		if err != nil {
			t.Errorf("%s: %v", route, err)
		}
	}
	var last protocol.Hello
	said := len(s.hellos)
	for range said {
		last = receive(t, s.hellos)
	}
	if said >= n/2 || len(last.Subscriptions) != n {
		t.Errorf("%d Hellos for %d routes, the last with %d", said, n, len(last.Subscriptions))
	}
}

func TestARefusedRouteIsRefusedAlone(t *testing.T) {
	s := startStandIn(t)
	s.judging(func(h protocol.Hello) *protocol.Error {
		for _, spec := range h.Subscriptions {
			if spec.Route == "r7" {
				return protocol.Errorf(protocol.CodeConflict, "not this one")
			}
		}
		return nil
	})
	for route, err := range s.workAll(s.connect(), routes(20)) {
		if route == "r7" {
			wantCode(t, err, protocol.CodeConflict)
		} else if err != nil {
			t.Errorf("%s: %v", route, err)
		}
	}
}
