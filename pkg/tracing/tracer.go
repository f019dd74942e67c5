package tracing

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Tracer makes spans of messages. A nil one makes none; so do its methods for
// what is not sampled, and return a nil span.
type Tracer struct{ tracer trace.Tracer }

// New makes a tracer that says it is the named library; nil if the provider
// makes no spans, as OpenTelemetry's own does in a program that has not set up
// an SDK.
func New(p trace.TracerProvider, name, version string) *Tracer {
	t := p.Tracer(name, trace.WithInstrumentationVersion(version))
	if !makesSpans(t) {
		return nil
	}
	return &Tracer{tracer: t}
}

// makesSpans says whether a tracer does more than pass contexts on: then a span
// has an id of its own, sampled or not. The one that is asked for is not, and
// never ended.
func makesSpans(t trace.Tracer) bool {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
	_, span := t.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), "probe") //nolint:spancheck // what is not ended is not exported
	return span.SpanContext().SpanID() != parent.SpanID()                                         //nolint:spancheck // likewise
}

// operation is something that is done to a message.
type operation struct {
	name  string
	named int // its place in Place.names
	kind  []trace.SpanStartOption
	what  []attribute.KeyValue
}

// operations are all names of them, in the order of Place.names.
var operations = []string{"publish", "deliver", "process", "wait", "dead_letter", "redrive", "discard"}

func operate(name string, kind trace.SpanKind, what ...attribute.KeyValue) *operation {
	return &operation{
		name: name, named: slices.Index(operations, name),
		kind: []trace.SpanStartOption{trace.WithSpanKind(kind)}, what: append(what, semconv.MessagingOperationName(name)),
	}
}

var (
	publish  = operate("publish", trace.SpanKindProducer, semconv.MessagingOperationTypeSend)
	deliver  = operate("deliver", trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess)
	handle   = operate("process", trace.SpanKindInternal)
	process  = operate("process", trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess)
	wait     = operate("wait", trace.SpanKindInternal)
	dead     = operate("dead_letter", trace.SpanKindInternal)
	redrive  = operate("redrive", trace.SpanKindProducer, semconv.MessagingOperationTypeSend)
	discard  = operate("discard", trace.SpanKindInternal, semconv.MessagingOperationTypeSettle)
	operates = map[string]*operation{"redrive": redrive, "discard": discard}
)

// Message is what spans say of a message. What is zero is not said.
type Message struct {
	ID         string
	Size       int // of its body, in bytes
	Attempt    uint32
	Generation uint32
}

// Attributes of the mesh's own.
const (
	keyAttempt    = attribute.Key("waybill.message.attempt")
	keyGeneration = attribute.Key("waybill.message.generation")
	keyOutcome    = attribute.Key("waybill.outcome")
	keyReason     = attribute.Key("waybill.dead_letter.reason")
	keyCount      = attribute.Key("waybill.message.count")
	keyAction     = attribute.Key("waybill.action")
)

func (m *Message) append(to []attribute.KeyValue) []attribute.KeyValue {
	if m.ID != "" {
		to = append(to, semconv.MessagingMessageID(m.ID))
	}
	if m.Attempt > 0 {
		to = append(to, keyAttempt.Int64(int64(m.Attempt)), semconv.MessagingMessageBodySize(m.Size))
	}
	if m.Generation > 0 {
		to = append(to, keyGeneration.Int64(int64(m.Generation)))
	}
	return to
}

// start begins a span; nil if it is not recorded. Most are not, where a share is
// sampled: what is said of the message is said after that is known.
func (t *Tracer) start(ctx context.Context, o *operation, at *Place, m *Message, links []trace.Link, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	if len(links) > 0 {
		opts = append(opts, trace.WithLinks(links...))
	}
	if len(opts) == 0 {
		opts = o.kind
	} else {
		opts = append(opts, o.kind...)
	}
	ctx, span := t.tracer.Start(ctx, at.names[o.named], opts...)
	if !span.IsRecording() {
		return ctx, nil
	}
	held := hold(span)
	*held.attributes = m.append(append(append(*held.attributes, at.attributes...), o.what...))
	return ctx, held
}

// from is a context below a span that somebody else has made.
func from(parent trace.SpanContext) context.Context {
	return trace.ContextWithRemoteSpanContext(context.Background(), parent)
}

// Publish begins the span of a publish, in the trace of ctx. The context is to
// be injected into the message, also when the span is nil: if it has no trace
// then, the sampler has declined to begin one.
func (t *Tracer) Publish(ctx context.Context, to *Place, size int) (context.Context, trace.Span) {
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() && !parent.IsSampled() {
		return ctx, nil
	}
	within, span := t.start(ctx, publish, to, &Message{}, nil)
	if span == nil {
		return ctx, nil
	}
	span.SetAttributes(semconv.MessagingMessageBodySize(size))
	return within, span
}

// PublishFor begins the span of a publish that came without one, and adds it to
// the message's headers, which may be nil.
func (t *Tracer) PublishFor(headers map[string][]string, to *Place, size int) (map[string][]string, trace.Span) {
	_, span := t.Publish(context.Background(), to, size)
	if span == nil {
		return headers, nil
	}
	if headers == nil {
		headers = make(map[string][]string, 1)
	}
	headers[protocol.HeaderTraceparent] = []string{traceparent(span.SpanContext())}
	return headers, span
}

// EndPublish ends the span of a publish, refused with err or stored under id.
// span may be nil.
func EndPublish(span trace.Span, id string, err error) {
	if span == nil {
		return
	}
	if err != nil {
		fail(span, string(protocol.AsError(err).Code), err.Error())
	} else {
		span.SetAttributes(semconv.MessagingMessageID(id))
	}
	span.End()
}

// Deliver begins the span of an attempt, from the message's headers, which are
// sampled. It is linked to the spans that the ledger kept, and to the publish.
func (t *Tracer) Deliver(headers map[string][]string, spans string, at *Place, m Message) trace.Span {
	parent := Parent(headers)
	links := []trace.Link{{SpanContext: parent}}
	for _, sc := range Refs(spans) {
		if sc.SpanID() != parent.SpanID() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	_, span := t.start(from(parent), deliver, at, &m, links)
	return span
}

// EndDelivery ends the span of an attempt, or of its handler, with its outcome
// and the text of its error. Only acknowledged and cancelled are no errors.
func EndDelivery(span trace.Span, outcome protocol.Outcome, text string) {
	span.SetAttributes(keyOutcome.String(string(outcome)))
	switch outcome {
	case protocol.Acknowledged, protocol.Cancelled:
	case protocol.Timeout:
		fail(span, string(protocol.CodeTimeout), text)
	default:
		fail(span, string(outcome), text)
	}
	span.End()
}

// Process begins the span of a handler, of a delivery with these headers. Below
// the mesh's own span of the attempt it is a part of that; where the mesh makes
// none it stands for the attempt. ctx has what Extract found.
func (t *Tracer) Process(ctx context.Context, headers map[string][]string, at *Place, m Message) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	switch {
	case parent.IsValid() && !parent.IsSampled():
		return ctx, nil
	case Headers(headers).Get(protocol.HeaderSpan) != "":
		return t.start(ctx, handle, at, &m, nil)
	case parent.IsValid():
		return t.start(ctx, process, at, &m, []trace.Link{{SpanContext: parent}})
	default:
		return t.start(ctx, process, at, &m, nil)
	}
}

// Waited tells of a message's time between since and now, by the spans that the
// ledger kept of it: it is a part of the attempt that failed.
func (t *Tracer) Waited(spans string, at *Place, m Message, since time.Time) {
	if t == nil || len(spans) < refBytes {
		return
	}
	if _, span := t.start(from(Refs(spans)[0]), wait, at, &m, nil, trace.WithTimestamp(since)); span != nil {
		span.End()
	}
}

// Dead tells of a message that was given up at since, and is a dead letter now.
func (t *Tracer) Dead(spans string, at *Place, m Message, since time.Time, reason protocol.Reason) {
	if t == nil || len(spans) < refBytes {
		return
	}
	if _, span := t.start(from(Refs(spans)[0]), dead, at, &m, nil, trace.WithTimestamp(since)); span != nil {
		fail(span, string(reason), "")
		span.SetAttributes(keyReason.String(string(reason)))
		span.End()
	}
}

// Act begins the span of an operator's action on any number of messages, in the
// trace of ctx.
func (t *Tracer) Act(ctx context.Context, action string) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, action, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(system, keyAction.String(action)))
	if !span.IsRecording() {
		return ctx, nil
	}
	return ctx, span
}

// EndAct ends the span of an action that took place for so many messages. span
// may be nil.
func EndAct(span trace.Span, count int64, err error) {
	if span == nil {
		return
	}
	span.SetAttributes(keyCount.Int64(count))
	if err != nil {
		fail(span, string(protocol.AsError(err).Code), err.Error())
	}
	span.End()
}

// Acted tells of an action, redrive or discard, on one message, below the
// action's span, and returns what the ledger is to keep of the message's spans:
// what comes next refers to the failure and to this.
func (t *Tracer) Acted(action trace.SpanContext, name, spans string, at *Place, m Message) string {
	o := operates[name]
	if t == nil || o == nil || !action.IsSampled() || len(spans) < refBytes {
		return spans
	}
	failure := Refs(spans)[0]
	_, span := t.start(from(action), o, at, &m, []trace.Link{{SpanContext: failure}})
	if span == nil {
		return spans
	}
	span.End()
	return Ref(failure) + Ref(span.SpanContext())
}

// maxStatus bounds what a span says of an error, in bytes: a handler's text may
// be long.
const maxStatus = 256

func fail(span trace.Span, kind, text string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, text[:min(len(text), maxStatus)])
}
