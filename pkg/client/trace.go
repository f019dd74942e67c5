package client

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// TracerProvider sets where spans go: one for each publish, one for each
// delivery that is handled. Default is OpenTelemetry's global provider as it is
// when Connect is called; without an SDK behind it no spans are made, and the
// traces of contexts and messages are passed on all the same.
func TracerProvider(p trace.TracerProvider) Option {
	return connectFunc(func(o *options) error {
		if p == nil {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the tracer provider is nil: leave client.TracerProvider out for OpenTelemetry's global one")
		}
		o.tracing = p
		return nil
	})
}

const library = "github.com/waybill-mq/waybill/pkg"

// libraryVersion is the version of this module in the program, "" if it does
// not say.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == library {
			return m.Version
		}
	}
	return ""
}

// tracePublish begins the span of a publish; nil if there is none to make. The
// returned context's trace goes along with the message.
func (c *Client) tracePublish(ctx context.Context, m *Message) (context.Context, trace.Span) {
	if c.tracer == nil || m.To.err != nil || m.Headers[protocol.HeaderTraceparent] != "" {
		return ctx, nil
	}
	ctx, span := c.tracer.Publish(ctx, c.placeOf(m.To), len(m.Data))
	if span == nil && hasBaggage(ctx) && !trace.SpanContextFromContext(ctx).IsValid() {
		return tracing.Decline(ctx), nil
	}
	return ctx, span
}

// maxPlaces bounds the destinations whose names for spans are remembered.
const maxPlaces = 4096

// placeOf is the destination as spans name it.
func (c *Client) placeOf(d Destination) *tracing.Place {
	if p, ok := c.places.Load(d.subject); ok {
		return p.(*tracing.Place) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	p := d.place()
	if c.placed.Add(1) > maxPlaces {
		c.places.Clear()
		c.placed.Store(1)
	}
	c.places.Store(d.subject, p)
	return p
}

func (d Destination) place() *tracing.Place {
	if topic, ok := strings.CutPrefix(d.subject, protocol.SubjectPublishTopic); ok {
		return tracing.PlaceOf(scope.TopicPrefix + topic)
	}
	if queue, ok := strings.CutPrefix(d.subject, protocol.SubjectPublishJob); ok {
		return tracing.PlaceOf(scope.JobsQueue(queue))
	}
	execution, route, _ := strings.Cut(strings.TrimPrefix(d.subject, protocol.SubjectPublishQueue), ".")
	return tracing.PlaceOf(scope.ScopedName(execution, route))
}

// declined says that a publish from ctx, which carries no trace, is not to be
// sampled by those who take it.
func (c *Client) declined(ctx context.Context, msg *nats.Msg) bool {
	return headerOf(msg, protocol.HeaderTraceparent) == "" && (c.tracer != nil || tracing.Declined(ctx))
}

// traceHandler begins the span of a handler; nil if there is none to make.
func (w *Worker) traceHandler(d *Delivery) (context.Context, trace.Span) {
	turn := int(w.turn.Add(1)) % len(w.parents)
	if d.declined {
		return w.declined[turn], nil
	}
	ctx := tracing.Extract(w.parents[turn], tracing.Headers(d.msg.Header))
	if w.c.tracer == nil {
		return ctx, nil
	}
	return w.c.tracer.Process(ctx, d.msg.Header, w.place, tracing.Message{
		ID: d.ID, Size: len(d.Data), Attempt: uint32(d.Attempt), Generation: uint32(d.Generation),
	})
}

// endHandler ends its span.
func endHandler(span trace.Span, end ending) {
	if span != nil {
		tracing.EndDelivery(span, end.outcome, end.text)
	}
}

// injectTrace adds the trace of ctx to a message that carries none.
func injectTrace(ctx context.Context, msg *nats.Msg) {
	if !trace.SpanContextFromContext(ctx).IsValid() || headerOf(msg, protocol.HeaderTraceparent) != "" {
		return
	}
	if msg.Header == nil {
		msg.Header = make(nats.Header, 1)
	}
	tracing.Inject(ctx, tracing.Headers(msg.Header))
}

// hasBaggage says whether ctx has what needs a trace to travel with.
func hasBaggage(ctx context.Context) bool { return baggage.FromContext(ctx).Len() > 0 }

// about is the log for lines about a delivery, with its message and its trace.
func (w *Worker) about(ctx context.Context, d *Delivery) *slog.Logger {
	log := w.c.log.With("message_id", d.ID, "attempt", d.Attempt)
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() && !tracing.Declined(ctx) {
		log = log.With("trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String())
	}
	return log
}
