package router

import (
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// library is how the router's spans call it.
const library = "github.com/waybill-mq/waybill/services/router"

// trace begins a span for a publish that came without one, unless its publisher
// has declined. Its traceparent is the message's from now on.
func (p *publication) trace(t *tracing.Tracer) {
	if len(p.message.Headers[protocol.HeaderTraceparent]) > 0 {
		return
	}
	switch declined := strings.HasSuffix(p.reply, protocol.ReplyDeclined); {
	case declined && t == nil: // its workers may make spans
		if p.message.Headers == nil {
			p.message.Headers = make(map[string][]string, 1)
		}
		p.message.Headers[protocol.HeaderTraceparent] = []string{tracing.DeclinedParent}
	case !declined && t != nil:
		p.message.Headers, p.span = t.PublishFor(p.message.Headers, p.route.place(), len(p.message.Body))
	}
}

// declined says that m is not to be sampled though it has no traceparent that
// says so: whether it is traced was decided when it was published.
func (l *lane) declined(m *broker.Message) bool {
	return l.s.tracer != nil && len(m.Headers[protocol.HeaderTraceparent]) == 0
}

// place is where the route leads, as spans name it.
func (r *route) place() *tracing.Place {
	if r.at == nil {
		name := r.queue
		if r.topic != "" {
			name = scope.TopicPrefix + r.topic
		}
		r.at = tracing.PlaceOf(name)
	}
	return r.at
}

// spans are what the ledger keeps of the spans of a message that waits before its
// first attempt, so that its wait is told: nothing if it is not traced.
func (p *publication) spans(t *tracing.Tracer) string {
	if t == nil || p.due == 0 && len(p.to) == 0 || !tracing.Sampled(p.message.Headers) {
		return "" // to a topic an observer may add a delay of its own
	}
	return tracing.Ref(tracing.Parent(p.message.Headers))
}

// place is the queue as spans name it.
func (q *queue) place() *tracing.Place {
	if q.at == nil {
		q.at = tracing.PlaceOf(q.name)
	}
	return q.at
}

// trace begins the span of a delivery of a message that is traced, and returns
// what to tell the worker of it: a HeaderSpan, empty if there is none.
func (l *lane) trace(d *delivery, m *broker.Message) string {
	if l.s.tracer == nil || !tracing.Sampled(m.Headers) {
		return ""
	}
	e := d.e
	spans, _ := l.traced(e)
	d.span = l.s.tracer.Deliver(m.Headers, spans, d.q.place(), tracing.Message{
		ID: e.ID.String(), Size: len(m.Body), Attempt: e.Attempt, Generation: e.Generation,
	})
	if d.span == nil {
		return ""
	}
	return d.span.SpanContext().SpanID().String()
}

// Ends of a delivery that are no worker's answer.
const (
	endMoved   = protocol.Outcome("moved")   // the lane has another owner, who takes the answer
	endDropped = protocol.Outcome("dropped") // its execution was purged, or the broker has it back
)

// endSpan ends the delivery's span, if it has one that has not ended.
func (d *delivery) endSpan(what protocol.Outcome, text string) {
	if d.span != nil && d.span.IsRecording() {
		tracing.EndDelivery(d.span, what, text)
	}
}

// forgetSpan leaves a delivery out of the picture that has reached nobody: what
// is not ended is not exported.
func (d *delivery) forgetSpan() { d.span = nil }

// spanned is meta with what comes next referring to this delivery's span.
func (d *delivery) spanned(meta *broker.Meta) {
	if d.span != nil {
		meta.Spans = tracing.Ref(d.span.SpanContext())
	}
}

// waited tells of a pause between two attempts that was spent here, in the
// message's place in its queue.
func (l *lane) waited(e *broker.Entry) {
	if l.s.tracer == nil {
		return
	}
	spans, since := l.traced(e)
	if spans == "" || since == 0 {
		return
	}
	l.s.tracer.Waited(spans, l.queueOf(e).place(), tracing.Message{ID: e.ID.String()}, time.Unix(0, since))
}

// about is the log for lines about an entry, with its message and its trace.
func (l *lane) about(e *broker.Entry) *slog.Logger {
	log := l.s.log.With("queue", e.Queue.Name, "message_id", e.ID)
	sc := trace.SpanContext{}
	if d, ok := e.Slot.(*delivery); ok && d.span != nil {
		sc = d.span.SpanContext()
	} else if spans, _ := l.traced(e); spans != "" {
		sc = tracing.Refs(spans)[0]
	}
	if !sc.IsValid() {
		return log
	}
	return log.With("trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String())
}
