package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

func TestMain(m *testing.M) { meshtest.Main(m) }

// silence is short, so that the tests of it are, and long enough for who is not to be
// taken for silent on a machine that is slow.
const silence = 3 * time.Second

func mustStart(t *testing.T, s *natsserver.Server, o registry.Options) *registry.Service {
	t.Helper()
	o.Mesh.URL = s.URL()
	r, err := registry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, r) })
	return r
}

func mustStop(t *testing.T, r *registry.Service) {
	t.Helper()
	if err := r.Stop(meshtest.Context(t)); err != nil {
		t.Error(err)
	}
}

func request[R any](t *testing.T, nc *nats.Conn, subject string, q any) R {
	t.Helper()
	r, err := mesh.Request[R](meshtest.Context(t), nc, subject, q)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return r
}

func hello(t *testing.T, nc *nats.Conn, h protocol.Hello) protocol.Registered {
	t.Helper()
	return request[protocol.Registered](t, nc, protocol.SubjectHello, h)
}

func workers(t *testing.T, nc *nats.Conn) []protocol.Worker {
	t.Helper()
	return request[protocol.WorkersPage](t, nc, protocol.SubjectWorkers, protocol.WorkersRequest{}).Workers
}

// events are the changes of workers as they arrive.
func events(t *testing.T, nc *nats.Conn) func() protocol.Worker {
	t.Helper()
	sub, err := nc.SubscribeSync(protocol.SubjectWorkerChanged)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushWithContext(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return func() protocol.Worker {
		t.Helper()
		msg, err := sub.NextMsgWithContext(meshtest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		var changed protocol.WorkerChanged
		if err := json.Unmarshal(msg.Data, &changed); err != nil {
			t.Fatal(err)
		}
		return changed.Worker
	}
}

func one(worker, execution, route string) protocol.Hello {
	return protocol.Hello{
		WorkerID: worker, Name: "host/" + worker, Revision: 1,
		Subscriptions: []protocol.SubscriptionSpec{{Ref: "r", Execution: execution, Route: route}},
	}
}

const execution = "019ce6d0-aaaa-bbbb"

func TestADeclarationBecomesARecord(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	next := events(t, nc)
	h := one("w1", execution, "/queue/scraping.tasks")
	h.Subscriptions[0].Name = "web-scraper"
	h.Functions = []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: "default", ID: "math::add"}}}

	got := hello(t, nc, h)
	if got.User != "local" || got.KeepaliveMs != protocol.KeepaliveInterval.Milliseconds() || len(got.Warnings) != 0 || len(got.Subscriptions) != 1 {
		t.Fatalf("registered: %+v", got)
	}
	sub := got.Subscriptions[0]
	if sub.Ref != "r" || sub.Name != "web-scraper:019ce6d0" || sub.Queue != "/queue/"+execution+"/scraping.tasks" || sub.Deliver != "wb.v1.deliver.local."+sub.ID {
		t.Errorf("subscription: %+v", sub)
	}
	changed := next()
	if len(changed.Subscriptions) != 1 || changed.KVRevision == 0 || changed.Gone {
		t.Fatalf("event: %+v", changed)
	}
	full := changed.Subscriptions[0]
	if full.Concurrency != 10 || full.MaxRetries != 3 || full.BackoffMs != 1000 || full.TimeoutMs != 1800000 || full.Worker != "w1" || full.Since.IsZero() {
		t.Errorf("defaults: %+v", full)
	}
	if listed := workers(t, nc); len(listed) != 1 || listed[0].KVRevision != changed.KVRevision {
		t.Errorf("workers: %+v", listed)
	}
	subs := request[protocol.SubscriptionsPage](t, nc, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Execution: execution})
	if len(subs.Subscriptions) != 1 || subs.Subscriptions[0].Name != "web-scraper:019ce6d0" || subs.Subscriptions[0].WorkerName != "host/w1" {
		t.Errorf("subscriptions: %+v", subs)
	}
	if none := request[protocol.SubscriptionsPage](t, nc, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Execution: "other"}); len(none.Subscriptions) != 0 {
		t.Errorf("another execution sees %+v", none)
	}
	fns := request[protocol.FunctionsPage](t, nc, protocol.SubjectFunctions, protocol.FunctionsRequest{})
	if len(fns.Functions) != 1 || fns.Functions[0].ID != "math::add" || !slices.Equal(fns.Functions[0].Workers, []string{"w1"}) {
		t.Errorf("functions: %+v", fns)
	}
}

func TestALaterDeclarationReplacesAnEarlier(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	h := one("w1", execution, "a")
	first := hello(t, nc, h)
	before := workers(t, nc)[0]

	h.Revision = 2
	h.Subscriptions = append(h.Subscriptions, protocol.SubscriptionSpec{Ref: "s", Execution: execution, Route: "b"})
	second := hello(t, nc, h)
	after := workers(t, nc)[0]
	if second.Subscriptions[0] != first.Subscriptions[0] || len(after.Subscriptions) != 2 {
		t.Errorf("what stayed has changed: %+v, before %+v", second, first)
	}
	if after.KVRevision <= before.KVRevision || !after.Since.Equal(before.Since) || !after.Subscriptions[0].Since.Equal(before.Subscriptions[0].Since) {
		t.Errorf("since and revision: %+v, before %+v", after, before)
	}
	h.Revision = 1
	if _, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, h); protocol.CodeOf(err) != protocol.CodeConflict {
		t.Errorf("an older declaration: %v, want CONFLICT", err)
	}
	h.Revision, h.Subscriptions = 3, nil
	hello(t, nc, h)
	if w := workers(t, nc)[0]; len(w.Subscriptions) != 0 {
		t.Errorf("left behind: %+v", w.Subscriptions)
	}
}

func TestABadDeclarationIsRefusedAndNothingIsStored(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	number := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		spoil func(h *protocol.Hello)
		code  protocol.Code
	}{
		"worker id":           {func(h *protocol.Hello) { h.WorkerID = "a.b" }, protocol.CodeInvalidName},
		"no worker id":        {func(h *protocol.Hello) { h.WorkerID = "" }, protocol.CodeInvalidName},
		"execution wildcard":  {func(h *protocol.Hello) { h.Subscriptions[0].Execution = "*" }, protocol.CodeInvalidName},
		"execution rest":      {func(h *protocol.Hello) { h.Subscriptions[0].Execution = ">" }, protocol.CodeInvalidName},
		"execution too long":  {func(h *protocol.Hello) { h.Subscriptions[0].Execution = strings.Repeat("a", 65) }, protocol.CodeInvalidName},
		"route wildcard":      {func(h *protocol.Hello) { h.Subscriptions[0].Route = "a.*" }, protocol.CodeInvalidName},
		"another's queue":     {func(h *protocol.Hello) { h.Subscriptions[0].Route = "/queue/other/a" }, protocol.CodeInvalidName},
		"subscription name":   {func(h *protocol.Hello) { h.Subscriptions[0].Name = "a b" }, protocol.CodeInvalidName},
		"no ref":              {func(h *protocol.Hello) { h.Subscriptions[0].Ref = "" }, protocol.CodeInvalidArgs},
		"same ref":            {func(h *protocol.Hello) { h.Subscriptions = append(h.Subscriptions, h.Subscriptions[0]) }, protocol.CodeInvalidArgs},
		"concurrency below 0": {func(h *protocol.Hello) { h.Subscriptions[0].Concurrency = number(-1) }, protocol.CodeInvalidArgs},
		"concurrency above":   {func(h *protocol.Hello) { h.Subscriptions[0].Concurrency = number(65537) }, protocol.CodeInvalidArgs},
		"max_retries":         {func(h *protocol.Hello) { h.Subscriptions[0].MaxRetries = -1 }, protocol.CodeInvalidArgs},
		"backoff_ms":          {func(h *protocol.Hello) { h.Subscriptions[0].BackoffMs = -1 }, protocol.CodeInvalidArgs},
		"timeout_ms":          {func(h *protocol.Hello) { h.Subscriptions[0].TimeoutMs = 1 << 62 }, protocol.CodeInvalidArgs},
		"control characters":  {func(h *protocol.Hello) { h.Name = "a\nb" }, protocol.CodeInvalidArgs},
		"function namespace": {func(h *protocol.Hello) {
			h.Functions = []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: "a.b", ID: "f"}}}
		}, protocol.CodeInvalidName},
		"function id": {func(h *protocol.Hello) {
			h.Functions = []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: "a", ID: "f>"}}}
		}, protocol.CodeInvalidName},
		"too many": {func(h *protocol.Hello) {
			h.Subscriptions = slices.Repeat(h.Subscriptions, 5000)
		}, protocol.CodeLimitExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			h := one("w1", execution, "a")
			c.spoil(&h)
			_, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, h)
			if protocol.CodeOf(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if listed := workers(t, nc); len(listed) != 0 {
				t.Errorf("stored all the same: %+v", listed)
			}
		})
	}
	paused := one("w1", execution, "a")
	paused.Subscriptions[0].Concurrency = number(0)
	hello(t, nc, paused)
	if sub := workers(t, nc)[0].Subscriptions[0]; sub.Concurrency != 0 {
		t.Errorf("a paused subscription has concurrency %d", sub.Concurrency)
	}
}

func TestByeEndsARegistration(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	next := events(t, nc)
	hello(t, nc, one("w1", execution, "a"))
	there := next()
	for range 2 { // a second changes nothing
		request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: "w1"})
	}
	gone := next()
	if !gone.Gone || gone.ID != "w1" || gone.KVRevision <= there.KVRevision {
		t.Errorf("event: %+v, before %+v", gone, there)
	}
	if listed := workers(t, nc); len(listed) != 0 {
		t.Errorf("still listed: %+v", listed)
	}
	if n := messages(t, nc); n != 0 {
		t.Errorf("%d records are left behind", n)
	}
	hello(t, nc, one("w1", execution, "a"))
	if back := next(); back.Gone || back.KVRevision <= gone.KVRevision {
		t.Errorf("back: %+v", back)
	}
}

// A declaration that comes after its worker's bye is none, whichever registry
// has it; a newer one is.
func TestByeOvertakesADeclaration(t *testing.T) {
	server := meshtest.Server(t)
	for _, name := range []string{"a", "b"} {
		mustStart(t, server, registry.Options{Instance: name})
	}
	nc := meshtest.Connect(t, server)
	request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: "w1", Revision: 3})
	for revision := range uint64(4) {
		late := one("w1", execution, "a")
		late.Revision = revision
		meshtest.Eventually(t, "the refusal of a late declaration", func() bool { // the other registry may not know yet
			_, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, late)
			return protocol.CodeOf(err) == protocol.CodeConflict
		})
	}
	meshtest.Eventually(t, "nobody to be listed", func() bool { return len(workers(t, nc)) == 0 })
	again := one("w1", execution, "a")
	again.Revision = 4
	hello(t, nc, again)
}

// Workers that come and go at once are not listed afterwards, however late what
// they declared is read.
func TestManyComeAndGo(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	ctx := meshtest.Context(t)
	var coming sync.WaitGroup
	for i := range 20 {
		coming.Go(func() {
			for j := range 10 {
				h := one(fmt.Sprintf("w%d-%d", i, j), execution, "a")
				_, err := mesh.Request[protocol.Registered](ctx, nc, protocol.SubjectHello, h)
				if err == nil {
					_, err = mesh.Request[protocol.Empty](ctx, nc, protocol.SubjectBye, protocol.Bye{WorkerID: h.WorkerID, Revision: h.Revision})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	coming.Wait()
	if listed := workers(t, nc); len(listed) != 0 {
		t.Errorf("%d are still listed", len(listed))
	}
	hello(t, nc, one("last", execution, "a")) // whose record is read after all of theirs
	meshtest.Eventually(t, "the last alone to be listed", func() bool { return len(workers(t, nc)) == 1 })
}

// messages are all that the bucket holds, markers of deleted keys included.
func messages(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+registry.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

// gone is the next worker that is.
func gone(t *testing.T, next func() protocol.Worker) protocol.Worker {
	t.Helper()
	for {
		if w := next(); w.Gone {
			return w
		}
	}
}

// beat sends keepalives until the test ends or stop is called.
func beat(t *testing.T, nc *nats.Conn, worker string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() {
		again := time.NewTicker(silence / 6)
		defer again.Stop()
		for {
			if err := nc.Publish(protocol.SubjectKeepalive+worker, []byte(`{"revision":1}`)); err != nil {
				t.Error(err)
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); beating.Wait() })
	t.Cleanup(stop)
	return stop
}

func TestASilentWorkerIsGone(t *testing.T) {
	t.Parallel()
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{Silence: silence})
	nc := meshtest.Connect(t, server)
	next := events(t, nc)
	hello(t, nc, one("loud", execution, "a"))
	beat(t, nc, "loud")
	began := time.Now()
	if r := hello(t, nc, one("quiet", execution, "a")); r.KeepaliveMs != silence.Milliseconds()/3 {
		t.Errorf("keepalive every %d ms", r.KeepaliveMs)
	}
	next()
	next()
	if gone := next(); !gone.Gone || gone.ID != "quiet" {
		t.Errorf("event: %+v", gone)
	}
	if took := time.Since(began); took < silence {
		t.Errorf("it was gone after %s, before %s of silence", took, silence)
	}
	if listed := workers(t, nc); len(listed) != 1 || listed[0].ID != "loud" {
		t.Errorf("workers: %+v", listed)
	}
}

func TestAKeepaliveOfAnUnknownWorkerIsAnswered(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	hello(t, nc, one("w1", execution, "a"))
	ask := func(worker string, revision int) *nats.Msg {
		t.Helper()
		inbox := nc.NewInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(protocol.SubjectKeepalive+worker, inbox, fmt.Appendf(nil, `{"revision":%d}`, revision)); err != nil {
			t.Fatal(err)
		}
		msg, err := sub.NextMsgWithContext(meshtest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	for worker, revision := range map[string]int{"stranger": 1, "w1": 2} {
		var answer protocol.KeepaliveReply
		msg := ask(worker, revision)
		if err := json.Unmarshal(msg.Data, &answer); err != nil || answer.Known {
			t.Errorf("%s: %s, %v", worker, msg.Data, err)
		}
	}
}

func TestAWorkerIsNotAnsweredWhileItIsKnown(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	hello(t, nc, one("w1", execution, "a"))
	sub, err := nc.SubscribeSync("answers")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest(protocol.SubjectKeepalive+"w1", "answers", []byte(`{"revision":1}`)); err != nil {
		t.Fatal(err)
	}
	// A stranger's keepalive after it is answered; the other's answer, were
	// there one, would have come first.
	if err := nc.PublishRequest(protocol.SubjectKeepalive+"stranger", "answers", []byte(`{"revision":7}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsgWithContext(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := sub.Pending(); err != nil || n != 0 {
		t.Errorf("%d more answers, %v", n, err)
	}
}

func TestRecordsSurviveARestartAndNobodyExpiresAtIt(t *testing.T) {
	t.Parallel()
	server := meshtest.Server(t)
	nc := meshtest.Connect(t, server)
	first := mustStart(t, server, registry.Options{Silence: silence})
	hello(t, nc, one("w1", execution, "a"))
	mustStop(t, first)
	next := events(t, nc)
	began := time.Now()
	mustStart(t, server, registry.Options{Silence: silence})
	if listed := workers(t, nc); len(listed) != 1 || len(listed[0].Subscriptions) != 1 {
		t.Fatalf("after the restart: %+v", listed)
	}
	if w := gone(t, next); w.ID != "w1" || time.Since(began) < silence {
		t.Errorf("%s is gone after %s", w.ID, time.Since(began))
	}
}

// mustRestart stops a NATS on a directory, and starts it again after that long. It
// was not back before the time that is returned.
func mustRestart(t *testing.T, first *natsserver.Server, dir string, away time.Duration) (second *natsserver.Server, back time.Time) {
	t.Helper()
	u, err := url.Parse(first.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	awaitUntil(t, time.Now().Add(away))
	back = time.Now()
	second, err = natsserver.Start(meshtest.Context(t), natsserver.Options{DataDir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(meshtest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	return second, back
}

func TestNobodyExpiresBecauseNATSWasAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := natsserver.Start(meshtest.Context(t), natsserver.Options{DataDir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	mustStart(t, first, registry.Options{Silence: silence})
	nc := meshtest.Connect(t, first)
	hello(t, nc, one("loud", execution, "a"))
	hello(t, nc, one("quiet", execution, "a"))
	second, back := mustRestart(t, first, dir, silence+silence/2) // it has to be away for longer than that
	fresh := meshtest.Connect(t, second)
	next := events(t, fresh)
	beat(t, fresh, "loud")
	if w := gone(t, next); w.ID != "quiet" || time.Since(back) < silence {
		t.Errorf("%s is gone %s after NATS came back", w.ID, time.Since(back))
	}
	if listed := workers(t, fresh); len(listed) != 1 || listed[0].ID != "loud" {
		t.Errorf("workers: %+v", listed)
	}
}

func TestSeveralRegistriesAgree(t *testing.T) {
	server := meshtest.Server(t)
	for _, name := range []string{"a", "b"} {
		mustStart(t, server, registry.Options{Instance: name})
	}
	nc := meshtest.Connect(t, server)
	counts := func() []float64 {
		var all []float64
		stats, err := mesh.Gather[protocol.Stats](meshtest.Context(t), nc, protocol.SubjectStats, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stats {
			all = append(all, s.Gauges["workers"])
		}
		return all
	}
	hello(t, nc, one("w1", execution, "a"))
	hello(t, nc, one("w2", execution, "b"))
	meshtest.Eventually(t, "both know two workers", func() bool { return slices.Equal(counts(), []float64{2, 2}) })
	request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: "w1"})
	meshtest.Eventually(t, "both know one worker", func() bool { return slices.Equal(counts(), []float64{1, 1}) })
	var ready []protocol.Ready
	meshtest.Eventually(t, "both to say whether they are ready", func() bool { // one that is slow to is not waited for
		var err error
		if ready, err = mesh.Gather[protocol.Ready](meshtest.Context(t), nc, protocol.SubjectReady, nil, 0); err != nil {
			t.Fatal(err)
		}
		return len(ready) == 2
	})
	if !ready[0].Ready || !ready[1].Ready || ready[0].Instance == ready[1].Instance {
		t.Errorf("ready: %+v", ready)
	}
}

func TestDifferentPoliciesWarnAndTheNewestIsKept(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	policy := func() protocol.Policy {
		return request[protocol.Policy](t, nc, protocol.SubjectPolicy, protocol.PolicyRequest{Queue: "/queue/" + execution + "/a"})
	}
	defaults := protocol.Policy{MaxRetries: 3, BackoffMs: 1000, TimeoutMs: 1800000}
	if got := policy(); got != defaults {
		t.Errorf("without subscriptions: %+v", got)
	}
	if r := hello(t, nc, one("w1", execution, "a")); len(r.Warnings) != 0 {
		t.Errorf("the first is warned: %v", r.Warnings)
	}
	h := one("w2", execution, "a")
	h.Subscriptions[0].MaxRetries, h.Subscriptions[0].BackoffMs = 7, 50
	r := hello(t, nc, h)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "max_retries 7") || !strings.Contains(r.Warnings[0], "host/w1") {
		t.Errorf("warnings: %v", r.Warnings)
	}
	request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: "w2"})
	if got := policy(); got.MaxRetries != 7 || got.BackoffMs != 50 || got.TimeoutMs != defaults.TimeoutMs {
		t.Errorf("when its worker is gone: %+v", got)
	}
	again := one("w1", execution, "a")
	again.Revision = 2
	hello(t, nc, again) // declares nothing new
	if got := policy(); got.MaxRetries != 7 {
		t.Errorf("a repeated declaration counts as a new one: %+v", got)
	}
	hello(t, nc, one("w3", execution, "a"))
	if got := policy(); got != defaults {
		t.Errorf("after a new subscription with the defaults: %+v", got)
	}
}

func TestFieldsOfALaterVersionSurvive(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), registry.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "worker.w1", []byte(`{"min_writer":1,"id":"w1","revision":1,"zone":"north"}`)); err != nil {
		t.Fatal(err)
	}
	h := one("w1", execution, "a")
	h.Revision = 2
	hello(t, nc, h)
	entry, err := kv.Get(t.Context(), "worker.w1")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(entry.Value()), `"zone":"north"`) || !strings.Contains(string(entry.Value()), `"revision":2`) {
		t.Errorf("rewritten as %s", entry.Value())
	}
	if _, err := kv.Put(t.Context(), "worker.w2", []byte(`{"min_writer":99,"id":"w2","revision":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, one("w2", execution, "a")); protocol.CodeOf(err) != protocol.CodeUnsupported {
		t.Errorf("a record that may not be rewritten: %v, want UNSUPPORTED", err)
	}
}

func TestAThousandWorkersAtOnce(t *testing.T) {
	const n = 1000
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{Silence: meshtest.Patience}) // none sends a keepalive
	nc := meshtest.Connect(t, server)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			meshtest.Eventually(t, "the registration", func() bool {
				_, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, one(fmt.Sprintf("w%04d", i), execution, "a"))
				if err != nil && protocol.CodeOf(err) != protocol.CodeUnavailable { // else it is to be tried again
					t.Error(err)
				}
				return protocol.CodeOf(err) != protocol.CodeUnavailable
			})
		})
	}
	all.Wait()
	var ids []string
	for q := (protocol.WorkersRequest{Limit: 300}); ; {
		page := request[protocol.WorkersPage](t, nc, protocol.SubjectWorkers, q)
		for _, w := range page.Workers {
			ids = append(ids, w.ID)
		}
		if !page.More {
			break
		}
		q.After = ids[len(ids)-1]
	}
	if len(ids) != n || !slices.IsSorted(ids) || len(slices.Compact(ids)) != n {
		t.Errorf("%d workers in pages", len(ids))
	}
	var subs []string
	for q := (protocol.SubscriptionsRequest{Limit: 400}); ; q.Offset += 400 {
		page := request[protocol.SubscriptionsPage](t, nc, protocol.SubjectSubscription, q)
		for _, s := range page.Subscriptions {
			subs = append(subs, s.ID)
		}
		if !page.More {
			break
		}
	}
	slices.Sort(subs)
	if len(subs) != n || len(slices.Compact(subs)) != n {
		t.Errorf("%d subscriptions in pages", len(subs))
	}
	for _, q := range []any{protocol.WorkersRequest{Limit: -1}, protocol.WorkersRequest{Limit: 1 << 20}} {
		if _, err := mesh.Request[protocol.WorkersPage](meshtest.Context(t), nc, protocol.SubjectWorkers, q); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%+v: got %v, want INVALID_ARGS", q, err)
		}
	}
}

func TestStartAndStopAgainAndAgain(t *testing.T) {
	server := meshtest.Server(t)
	for range 10 {
		r := mustStart(t, server, registry.Options{Instance: "a"})
		var stops sync.WaitGroup
		for range 3 {
			stops.Go(func() { mustStop(t, r) })
		}
		stops.Wait()
		select {
		case <-r.Done():
		default:
			t.Fatal("it is not done after Stop")
		}
	}
	if _, err := registry.New(registry.Options{Instance: "a.b"}); protocol.CodeOf(err) != protocol.CodeInvalidName {
		t.Errorf("a bad instance: %v", err)
	}
	r, err := registry.New(registry.Options{Mesh: mesh.ConnectOptions{URL: "nats://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.Start(ctx); protocol.CodeOf(err) != protocol.CodeUnavailable {
		t.Errorf("without NATS: %v, want UNAVAILABLE", err)
	}
}

// lane stands in for the router that owns every lane: it confirms what it is
// told, unless it is away.
type lane struct {
	nc *nats.Conn

	mu   sync.Mutex
	away bool
	told []protocol.Worker

	configured uint64 // the newest revision
	defined    []protocol.LaneDefinition
}

const lanes = 2

func mustLanes(t *testing.T, s *natsserver.Server) *lane {
	t.Helper()
	l := &lane{nc: meshtest.Connect(t, s)}
	js, err := jetstream.New(l.nc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(meshtest.Context(t), jetstream.StreamConfig{
		Name: "WAYBILL_ROUTER", Subjects: []string{"wb.log.router.*"},
		Metadata: map[string]string{"waybill.ledgers": strconv.Itoa(lanes), "waybill.hash": "xxh64"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for verb, handle := range map[string]nats.MsgHandler{
		"follow": l.follow, protocol.VerbConfigure: l.configure, protocol.VerbDefine: l.define,
	} {
		if _, err := l.nc.Subscribe(protocol.SubjectLane+"*."+verb, handle); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.nc.FlushWithContext(meshtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lane) follow(m *nats.Msg) {
	var changed protocol.WorkerChanged
	if json.Unmarshal(m.Data, &changed) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		m.Respond(protocol.MarshalErrorBody(protocol.Errorf(protocol.CodeUnavailable, "moving")))
		return
	}
	l.told = append(l.told, changed.Worker)
	m.Respond([]byte("{}"))
}

func (l *lane) goes(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

// last is the last record it was told.
func (l *lane) last() (w protocol.Worker, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n = len(l.told); n > 0 {
		w = l.told[n-1]
	}
	return w, n
}

func observing(worker, topic, id string) protocol.Hello {
	return protocol.Hello{
		WorkerID: worker, Name: "host/" + worker, Revision: 1,
		Subscriptions: []protocol.SubscriptionSpec{{Ref: "r", Kind: protocol.KindObserve, Topic: topic, ObserverID: id}},
	}
}

func TestSubscriptionsToTopics(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	h := observing("w1", "/topic/news", "")
	h.Subscriptions = append(h.Subscriptions,
		protocol.SubscriptionSpec{Ref: "g", Kind: protocol.KindObserve, Topic: "news", Group: "mail", Execution: execution, Name: "mailer", MaxRetries: 5},
		protocol.SubscriptionSpec{Ref: "l", Kind: protocol.KindListen, Topic: "news"})
	got := hello(t, nc, h)
	subs := workers(t, nc)[0].Subscriptions
	observer, group, listener := subs[0], subs[1], subs[2]
	if observer.Queue != "news::observer:"+observer.ObserverID || len(observer.ObserverID) != 32 || observer.Topic != "news" ||
		observer.MaxRetries != 3 || observer.BackoffMs != 1000 || observer.TimeoutMs != 30000 || observer.Concurrency != 10 || observer.Name != "news" {
		t.Errorf("observer: %+v", observer)
	}
	if group.Queue != "news::@mail" || group.Name != "mailer:019ce6d0" || group.MaxRetries != 5 {
		t.Errorf("group: %+v", group)
	}
	if listener.Queue != "news::listen:"+listener.ID || listener.MaxRetries != 1 {
		t.Errorf("listener: %+v", listener)
	}
	if got.Subscriptions[1].Queue != group.Queue {
		t.Errorf("registered: %+v", got)
	}
	policy := request[protocol.Policy](t, nc, protocol.SubjectPolicy, protocol.PolicyRequest{Queue: group.Queue})
	other := request[protocol.Policy](t, nc, protocol.SubjectPolicy, protocol.PolicyRequest{Queue: "news::@other"})
	if policy.MaxRetries != 5 || other.MaxRetries != 3 || other.TimeoutMs != 30000 {
		t.Errorf("policies: %+v, %+v", policy, other)
	}
	h.Revision = 2 // over a reconnect
	hello(t, nc, h)
	if again := workers(t, nc)[0].Subscriptions[0]; again.ObserverID != observer.ObserverID {
		t.Errorf("the id has changed: %+v", again)
	}
	h.Revision, h.Subscriptions[1].Ref, h.Subscriptions[1].Group, h.Subscriptions[1].ObserverID = 3, "x", "", observer.ObserverID
	if _, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, h); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("one worker observes twice under one id: %v", err)
	}
}

// A hello is answered when the owners of its topics' lanes have confirmed it,
// and so is its end.
func TestSubscriptionsAreConfirmedByTheLane(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	lane := mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	lane.goes(true)
	answered := make(chan error, 1)
	go func() {
		_, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, observing("w1", "news", "a"))
		answered <- err
	}()
	meshtest.Eventually(t, "the record is stored", func() bool { return len(workers(t, nc)) == 1 })
	select {
	case err := <-answered:
		t.Fatalf("answered before the lane has confirmed: %v", err)
	default:
	}
	lane.goes(false)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if w, _ := lane.last(); w.ID != "w1" || len(w.Subscriptions) != 1 || w.KVRevision == 0 {
		t.Errorf("the lane was told %+v", w)
	}
	hello(t, nc, one("w2", execution, "a"))
	if _, n := lane.last(); n != 1 {
		t.Error("a lane was asked about a worker without topics")
	}
	request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: "w1"})
	if w, n := lane.last(); n != 2 || !w.Gone {
		t.Errorf("after the end: %+v", w)
	}
}

func TestAnObserverIDBelongsToOneWorker(t *testing.T) {
	server := meshtest.Server(t)
	for _, name := range []string{"a", "b"} {
		mustStart(t, server, registry.Options{Instance: name})
	}
	mustLanes(t, server)
	nc, dying := meshtest.Connect(t, server), meshtest.Connect(t, server)
	if _, err := dying.Subscribe(protocol.WorkerSubject("w0", protocol.VerbProbe), func(m *nats.Msg) { m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	hello(t, dying, observing("w0", "news", "a"))

	// Any number at once, through either registry: one has a fresh id.
	const n = 8
	var asking sync.WaitGroup
	took := make([]bool, n)
	for i := range n {
		asking.Go(func() {
			r := hello(t, nc, observing("w"+strconv.Itoa(i+1), "news", "fresh"))
			took[i] = len(r.Subscriptions) == 1
			if !took[i] && (len(r.Refused) != 1 || r.Refused[0].Error.Code != protocol.CodeObserverIDConflict) {
				t.Errorf("%+v", r)
			}
		})
	}
	asking.Wait()
	if i := slices.Index(took, true); i < 0 || slices.Contains(took[i+1:], true) {
		t.Errorf("who has the id: %v", took)
	}

	other, same := observing("w20", "news", "a"), observing("w21", "news", "a")
	same.Name = "host/w0"
	for _, h := range []protocol.Hello{other, same} {
		if r := hello(t, nc, h); len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Error.Message, "host/w0") {
			t.Errorf("while it lives: %+v", r)
		}
	}
	dying.Close() // as a kill does
	same.Revision, other.Revision = 2, 2
	meshtest.Eventually(t, "the server to notice", func() bool { return !responds(nc, "w0") })
	if r := hello(t, nc, other); len(r.Refused) != 1 {
		t.Errorf("another program has what was left a moment ago: %+v", r)
	}
	if r := hello(t, nc, same); len(r.Subscriptions) != 1 {
		t.Errorf("the same program, started again: %+v", r)
	}
	request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: "w21"})
	other.Revision = 3
	if r := hello(t, nc, other); len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Error.Message, "until") {
		t.Errorf("another program has what was left behind: %+v", r)
	}
}

func responds(nc *nats.Conn, worker string) bool {
	_, err := nc.Request(protocol.WorkerSubject(worker, protocol.VerbProbe), nil, 100*time.Millisecond)
	return !errors.Is(err, nats.ErrNoResponders)
}

// Who has left stays so, and what is open again is, also when a NATS that was
// killed has built its state anew from what is on its disk.
func TestWhatWasRemovedStaysSoAfterACrash(t *testing.T) {
	dir, crashed := t.TempDir(), t.TempDir()
	server, err := natsserver.Start(meshtest.Context(t), natsserver.Options{DataDir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(meshtest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	nc := meshtest.Connect(t, server)
	makeBucket(t, nc)
	mustStart(t, server, registry.Options{})
	hello(t, nc, one("stays", execution, "a"))
	left := one("left", execution, "a")
	for left.Revision = range uint64(70) { // more than the bucket has room for
		hello(t, nc, left)
	}
	request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: "left", Revision: left.Revision})
	request[protocol.Execution](t, nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: "open"})
	request[protocol.Empty](t, nc, protocol.SubjectExecutionReopen, protocol.ExecutionReopenRequest{Execution: "open"})
	if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	second, err := natsserver.Start(meshtest.Context(t), natsserver.Options{DataDir: crashed, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(meshtest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	mustStart(t, second, registry.Options{})
	nc = meshtest.Connect(t, second)
	if listed := workers(t, nc); len(listed) != 1 || listed[0].ID != "stays" {
		t.Errorf("after the crash these are listed: %+v", listed)
	}
	if page := request[protocol.ExecutionsPage](t, nc, protocol.SubjectExecutions, protocol.ExecutionsRequest{}); len(page.Executions) > 0 {
		t.Errorf("after the crash these are closed: %+v", page.Executions)
	}
}

// makeBucket makes the bucket as earlier versions did, with room for one
// revision of each record.
func makeBucket(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(meshtest.Context(t), jetstream.KeyValueConfig{Bucket: registry.Bucket, History: 1}); err != nil {
		t.Fatal(err)
	}
}
