package tracing

import (
	"context"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Headers carry a context with the case of their names as it is: the mesh's
// are in lower case, as W3C has them.
type Headers map[string][]string

// Get is the header's first value.
func (h Headers) Get(name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces the header. Baggage over what travels is cut to it.
func (h Headers) Set(name, value string) {
	if name == protocol.HeaderBaggage {
		if value = protocol.CutBaggage(value); value == "" {
			return
		}
	}
	h[name] = []string{value}
}

// Keys are the names.
func (h Headers) Keys() []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	return names
}

// DeclinedParent is the traceparent of what nobody has brought a trace for and a
// sampler has not chosen, where one is needed to say so. No sampler by ratio
// chooses its id either.
const DeclinedParent = "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-00"

var declined = Parent(map[string][]string{protocol.HeaderTraceparent: {DeclinedParent}})

// Decline is ctx in no trace: what is done in it is not sampled.
func Decline(ctx context.Context) context.Context {
	return trace.ContextWithRemoteSpanContext(ctx, declined)
}

// Declined says whether ctx stems from one that Decline has made, and from no
// trace since.
func Declined(ctx context.Context) bool {
	return trace.SpanContextFromContext(ctx).TraceID() == declined.TraceID()
}

// Inject adds the trace and baggage of ctx to headers, if it has a trace and
// they do not.
func Inject(ctx context.Context, h Headers) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() || h.Get(protocol.HeaderTraceparent) != "" {
		return
	}
	h[protocol.HeaderTraceparent] = []string{traceparent(sc)}
	if sc.TraceState().Len() > 0 {
		h[protocol.HeaderTracestate] = []string{sc.TraceState().String()}
	}
	propagation.Baggage{}.Inject(ctx, h)
}

// Extract is ctx with the trace and baggage of headers, if they have a trace.
// Of a delivery it is the trace at the span of that attempt.
func Extract(ctx context.Context, h Headers) context.Context {
	if h.Get(protocol.HeaderTraceparent) == "" {
		return ctx
	}
	sc := Parent(h)
	if !sc.IsValid() {
		return ctx
	}
	if at := h.Get(protocol.HeaderSpan); at != "" {
		if id, err := trace.SpanIDFromHex(at); err == nil {
			sc = sc.WithSpanID(id)
		}
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	if h.Get(protocol.HeaderBaggage) != "" {
		ctx = propagation.Baggage{}.Extract(ctx, h)
	}
	return ctx
}

// The environment variables that carry a context between processes.
const (
	envParent  = "TRACEPARENT"
	envState   = "TRACESTATE"
	envBaggage = "BAGGAGE"
)

// FromEnvironment is ctx with the trace that the process was started in, if
// there is one.
func FromEnvironment(ctx context.Context, getenv func(string) string) context.Context {
	h := Headers{}
	for name, env := range map[string]string{
		protocol.HeaderTraceparent: envParent, protocol.HeaderTracestate: envState, protocol.HeaderBaggage: envBaggage,
	} {
		if v := strings.TrimSpace(getenv(env)); v != "" {
			h[name] = []string{v}
		}
	}
	protocol.CleanTrace(h)
	return Extract(ctx, h)
}

// Environment is ctx's trace as variables for a process that is started in it.
// Those without a value are there too, so that it does not inherit another's.
func Environment(ctx context.Context) []string {
	h := Headers{}
	Inject(ctx, h)
	return []string{
		envParent + "=" + h.Get(protocol.HeaderTraceparent),
		envState + "=" + h.Get(protocol.HeaderTracestate),
		envBaggage + "=" + h.Get(protocol.HeaderBaggage),
	}
}

// sampledAt is where the flags of a traceparent end.
const sampledAt = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-0")

// Sampled says whether headers, which CleanTrace has seen, have a trace that is
// recorded.
func Sampled(headers map[string][]string) bool {
	values := headers[protocol.HeaderTraceparent]
	if len(values) != 1 || len(values[0]) <= sampledAt {
		return false
	}
	c := values[0][sampledAt]
	if c >= 'a' {
		c -= 'a' - 10
	}
	return c&1 == 1
}

// Parent is the span that headers name, the zero context if they name none.
func Parent(headers map[string][]string) trace.SpanContext {
	h := Headers(headers)
	if h.Get(protocol.HeaderTracestate) == "" {
		if sc, ok := parse(h.Get(protocol.HeaderTraceparent)); ok {
			return sc
		}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), h)
	return trace.SpanContextFromContext(ctx)
}

// parse reads a traceparent of the usual form, at a fraction of the propagator's
// cost; of any other it says nothing.
func parse(value string) (trace.SpanContext, bool) {
	if len(value) != sampledAt+1 || value[:3] != "00-" || value[35] != '-' || value[52:sampledAt] != "-0" || value[sampledAt]|1 != '1' {
		return trace.SpanContext{}, false
	}
	c := trace.SpanContextConfig{TraceFlags: trace.TraceFlags(value[sampledAt] & 1), Remote: true}
	if !decode(c.TraceID[:], value[3:35]) || !decode(c.SpanID[:], value[36:52]) {
		return trace.SpanContext{}, false
	}
	sc := trace.NewSpanContext(c)
	return sc, sc.IsValid()
}

// decode reads lower-case hexadecimal digits.
func decode(to []byte, digits string) bool {
	var b [32]byte
	_, err := hex.Decode(to, b[:copy(b[:], digits)])
	return err == nil && !strings.ContainsAny(digits, "ABCDEF")
}

// traceparent is a span as headers have it.
func traceparent(sc trace.SpanContext) string {
	id, span := sc.TraceID(), sc.SpanID()
	var b [sampledAt + 1]byte
	copy(b[:], "00-")
	hex.Encode(b[3:], id[:])
	b[35] = '-'
	hex.Encode(b[36:], span[:])
	copy(b[52:], "-0")
	b[sampledAt] = '0' + byte(sc.TraceFlags()&trace.FlagsSampled)
	return string(b[:])
}

// refBytes is how long a span is in Meta.Spans of a ledger.
const refBytes = 24

// Ref is a span as a ledger keeps it: the trace's id and the span's.
func Ref(sc trace.SpanContext) string {
	id, span := sc.TraceID(), sc.SpanID()
	return string(append(id[:], span[:]...))
}

// Refs are the spans that a ledger kept, all of recorded traces.
func Refs(spans string) []trace.SpanContext {
	var all []trace.SpanContext
	for ; len(spans) >= refBytes; spans = spans[refBytes:] {
		all = append(all, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID([]byte(spans[:16])), SpanID: trace.SpanID([]byte(spans[16:refBytes])),
			TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	return all
}
