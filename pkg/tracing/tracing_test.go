package tracing_test

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	parent  = "00-" + traceID + "-" + spanID + "-01"
)

func TestNothingIsSpentWithoutSDK(t *testing.T) {
	for what, p := range map[string]trace.TracerProvider{"the global one": otel.GetTracerProvider(), "a noop": noop.NewTracerProvider()} {
		if tracing.New(p, "test", "") != nil {
			t.Errorf("%s makes spans", what)
		}
	}
	for what, headers := range map[string]map[string][]string{
		"not sampled": {protocol.HeaderTraceparent: {parent[:len(parent)-1] + "0"}}, "none": nil, "other flags": {protocol.HeaderTraceparent: {parent[:len(parent)-1] + "e"}},
	} {
		if n := testing.AllocsPerRun(100, func() {
			if tracing.Sampled(headers) {
				t.Errorf("%s is sampled", what)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	for _, flags := range []string{"1", "9", "b", "f"} {
		if !tracing.Sampled(map[string][]string{protocol.HeaderTraceparent: {parent[:len(parent)-1] + flags}}) {
			t.Errorf("flags 0%s are not sampled", flags)
		}
	}
}

func TestTheSpanOfADeliveryIsTheParent(t *testing.T) {
	h := tracing.Headers{protocol.HeaderTraceparent: {parent}, protocol.HeaderBaggage: {"a=1"}, protocol.HeaderSpan: {"00f067aa0ba902b7"}}
	ctx := tracing.Extract(t.Context(), h)
	if sc := trace.SpanContextFromContext(ctx); sc.TraceID().String() != traceID || sc.SpanID().String() != "00f067aa0ba902b7" || !sc.IsSampled() {
		t.Errorf("the context is in %v", sc)
	}
	h[protocol.HeaderSpan] = []string{"garbage"}
	if sc := trace.SpanContextFromContext(tracing.Extract(t.Context(), h)); sc.SpanID().String() != spanID {
		t.Errorf("the context is in %v", sc)
	}
	again := tracing.Headers{}
	tracing.Inject(ctx, again)
	if got := again.Get(protocol.HeaderTraceparent); got != "00-"+traceID+"-00f067aa0ba902b7-01" || again.Get(protocol.HeaderBaggage) != "a=1" {
		t.Errorf("injected is %v", again)
	}
}

// However it is read, a traceparent means what the propagator says.
func TestATraceparentIsReadAsThePropagatorReadsIt(t *testing.T) {
	for _, value := range []string{
		parent, parent[:len(parent)-1] + "0", parent[:len(parent)-2] + "03", parent[:len(parent)-2] + "ff", parent[:len(parent)-2] + "0g",
		strings.ToUpper(parent), "00-" + strings.Repeat("0", 32) + "-" + spanID + "-01", "00-" + traceID + "-" + strings.Repeat("0", 16) + "-01",
		"01-" + parent[3:] + "-more", "ff" + parent[2:], parent + "-more", strings.Replace(parent, "-", "_", 2), tracing.DeclinedParent, "", "garbage",
		strings.Replace(parent, "a", "x", 1), strings.Replace(parent, "a", "A", 1),
	} {
		h := tracing.Headers{protocol.HeaderTraceparent: {value}}
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), h))
		if got := tracing.Parent(h); !got.Equal(want) {
			t.Errorf("%q is %v, want %v", value, got, want)
		}
		h[protocol.HeaderTracestate] = []string{"vendor=1"}
		want = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), h))
		if got := trace.SpanContextFromContext(tracing.Extract(t.Context(), h)); !got.Equal(want) {
			t.Errorf("%q is extracted as %v, want %v", value, got, want)
		}
	}
}

func TestSpansAreKeptAndReadAgain(t *testing.T) {
	sc := tracing.Parent(map[string][]string{protocol.HeaderTraceparent: {parent}})
	refs := tracing.Refs(tracing.Ref(sc) + tracing.Ref(sc) + "cut off")
	if len(refs) != 2 || refs[1].TraceID() != sc.TraceID() || refs[1].SpanID() != sc.SpanID() || !refs[0].IsSampled() {
		t.Errorf("%v", refs)
	}
	if len(tracing.Refs("")) > 0 {
		t.Error("nothing is kept, and read")
	}
}

func TestTheEnvironmentCarriesATrace(t *testing.T) {
	env := map[string]string{"TRACEPARENT": parent, "TRACESTATE": "v=1", "BAGGAGE": "a=1"}
	ctx := tracing.FromEnvironment(context.Background(), func(name string) string { return env[name] })
	for _, line := range tracing.Environment(ctx) {
		for name, value := range env {
			if line == name+"="+value {
				delete(env, name)
			}
		}
	}
	if len(env) > 0 {
		t.Errorf("a child is not told %v", env)
	}
	none := tracing.FromEnvironment(context.Background(), func(string) string { return "garbage" })
	if trace.SpanContextFromContext(none).IsValid() {
		t.Error("garbage is a trace")
	}
}
