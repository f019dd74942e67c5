package trace_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// A publisher and a worker that speak NATS and know nothing of OpenTelemetry.
type foreign struct {
	*plain

	c *harness.Collector
}

// On one mesh that exports its traces.
func TestForeignPrograms(t *testing.T) {
	c := harness.StartCollector(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	m := harness.Start(t)
	for name, test := range map[string]func(t *testing.T, f *foreign){
		"published without a trace":            publishedWithoutTrace,
		"published in a trace":                 publishedInTrace,
		"published in one that is not sampled": notSampled,
		"published in none that is valid":      invalid,
		"published over HTTP":                  func(t *testing.T, f *foreign) { publishedOverHTTP(t, f, m.HTTP) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &foreign{plain: startPlain(t, m, strings.ReplaceAll(name, " ", "-")), c: c}
			test(t, f)
		})
	}
}

// The router makes the span that the publisher has not, and the message carries
// it from then on.
func publishedWithoutTrace(t *testing.T, f *foreign) {
	f.publish(t, nil)
	d := f.delivery(t)
	f.answer(t, d, protocol.Acknowledged)
	trace := traceOf(t, d)
	publish, attempt := f.c.Await(t, 1, trace, "publish ")[0], f.c.Await(t, 1, trace, "deliver ")[0]
	if publish.Parent != "" || d.Header[protocol.HeaderTraceparent][0] != parent(trace, publish.ID) {
		t.Errorf("the publish is %s below %q, the message says %v", publish.ID, publish.Parent, d.Header)
	}
	if attempt.Parent != publish.ID || d.Header[protocol.HeaderSpan][0] != attempt.ID {
		t.Errorf("the attempt is %s below %s, the delivery says %v", attempt.ID, attempt.Parent, d.Header)
	}
}

// What is published in a trace is delivered with it as it is, in each attempt,
// and with as many headers.
func publishedInTrace(t *testing.T, f *foreign) {
	const trace = "aaaaaaaa16cd43dd8448eb211c80319c"
	headers := nats.Header{
		protocol.HeaderTraceparent: {parent(trace, appSpan)}, protocol.HeaderTracestate: {"vendor=1"}, protocol.HeaderBaggage: {"tenant=a"},
	}
	f.publish(t, headers)
	var names []string
	for i := range 3 {
		d := f.delivery(t)
		for name, want := range headers {
			if !slices.Equal(d.Header[name], want) {
				t.Errorf("attempt %d has %s %q, published was %q", i+1, name, d.Header[name], want)
			}
		}
		now := slices.Sorted(maps.Keys(d.Header))
		if i > 0 && !slices.Equal(now, names) {
			t.Errorf("attempt %d has the headers %v, the one before %v", i+1, now, names)
		}
		if names = now; len(d.Header[protocol.HeaderSpan]) != 1 {
			t.Errorf("attempt %d has the spans %v", i+1, d.Header[protocol.HeaderSpan])
		}
		f.answer(t, d, protocol.Failed)
	}
	if publishes := f.c.Of(trace, "publish"); len(publishes) > 0 {
		t.Errorf("the mesh made a publish of its own: %v", publishes[0])
	}
	attempts := f.c.Await(t, 3, trace, "deliver ")
	for i, s := range attempts {
		want := []string{appSpan}
		if i > 0 {
			want = append(want, attempts[i-1].ID)
		}
		if s.Parent != appSpan || !slices.Equal(s.Linked, want) {
			t.Errorf("attempt %d is below %s and links to %v, want %v", i+1, s.Parent, s.Linked, want)
		}
	}
	f.c.Await(t, 2, trace, "wait ")
	f.c.Await(t, 1, trace, "dead_letter ")
}

// Nothing is done for a message whose publisher did not sample it.
func notSampled(t *testing.T, f *foreign) {
	const trace = "bbbbbbbb16cd43dd8448eb211c80319c"
	unsampled := strings.TrimSuffix(parent(trace, appSpan), "1") + "0"
	f.publish(t, nats.Header{protocol.HeaderTraceparent: {unsampled}})
	d := f.delivery(t)
	f.answer(t, d, protocol.Failed)
	again := f.delivery(t)
	f.answer(t, again, protocol.Acknowledged)
	for _, d := range []*nats.Msg{d, again} {
		if len(d.Header[protocol.HeaderSpan]) > 0 || d.Header[protocol.HeaderTraceparent][0] != unsampled {
			t.Errorf("it was delivered with %v", d.Header)
		}
	}
	publishedWithoutTrace(t, f) // what is exported after it is there
	if spans := f.c.Of(trace, ""); len(spans) > 0 {
		t.Errorf("%d spans were exported, the first %v", len(spans), spans[0])
	}
}

// A traceparent that is none is left out, and the publish is stored.
func invalid(t *testing.T, f *foreign) {
	f.publish(t, nats.Header{protocol.HeaderTraceparent: {"00-garbage-01"}, protocol.HeaderTracestate: {"a=1"}})
	d := f.delivery(t)
	f.answer(t, d, protocol.Acknowledged)
	traceOf(t, d) // the router's
	if len(d.Header[protocol.HeaderTracestate]) > 0 {
		t.Errorf("it was delivered with %v", d.Header)
	}
}

// The gateway makes the span of a publish over HTTP, in the request's trace.
func publishedOverHTTP(t *testing.T, f *foreign, gateway string) {
	const trace = "dddddddd16cd43dd8448eb211c80319c"
	url := gateway + "/api/v1/queues/" + f.execution + "/step/messages"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Traceparent", parent(trace, appSpan))
	request.Header.Set("Baggage", "tenant=a")
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	d := f.delivery(t)
	f.answer(t, d, protocol.Acknowledged)
	publish, attempt := f.c.Await(t, 1, trace, "publish ")[0], f.c.Await(t, 1, trace, "deliver ")[0]
	if publish.Parent != appSpan || attempt.Parent != publish.ID || traceOf(t, d) != trace {
		t.Errorf("the publish is below %s, the attempt below %s, the message says %v", publish.Parent, attempt.Parent, d.Header)
	}
	if baggage := d.Header[protocol.HeaderBaggage]; !slices.Equal(baggage, []string{"tenant=a"}) {
		t.Errorf("it was delivered with the baggage %q", baggage)
	}
}

// What links need outlives the mesh.
func TestLinksOutliveTheMesh(t *testing.T) {
	c := harness.StartCollector(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	m := harness.Start(t)
	f := &foreign{plain: startPlain(t, m, "run"), c: c}
	const trace = "cccccccc16cd43dd8448eb211c80319c"
	f.backoff = time.Hour
	f.hello(t)
	f.publish(t, nats.Header{protocol.HeaderTraceparent: {parent(trace, appSpan)}})
	f.answer(t, f.delivery(t), protocol.Failed)
	first := f.c.Await(t, 1, trace, "deliver ")[0]
	harness.Await(t, "the message waits", func() bool { return m.Queue(f.execution, "step").Waiting == 1 })
	m.Kill()
	m.Restart()
	f.hello(t)
	if released := m.Run("retry", "now", f.execution+"/step"); released.Code != 0 {
		t.Fatalf("letting it go: %+v", released)
	}
	f.answer(t, f.delivery(t), protocol.Acknowledged)
	second := f.c.Await(t, 2, trace, "deliver ")[1]
	if want := []string{appSpan, first.ID}; !slices.Equal(second.Linked, want) {
		t.Errorf("the second attempt links to %v, want %v", second.Linked, want)
	}
	if wait := f.c.Await(t, 1, trace, "wait ")[0]; wait.Parent != first.ID {
		t.Errorf("the wait is below %s, want %s", wait.Parent, first.ID)
	}
}

// traceOf is the trace of a delivery, which has one.
func traceOf(t *testing.T, d *nats.Msg) string {
	t.Helper()
	values := d.Header[protocol.HeaderTraceparent]
	if len(values) != 1 || len(values[0]) != len(parent(appTrace, appSpan)) {
		t.Fatalf("the delivery has the traceparents %q", values)
	}
	return values[0][3:35]
}
