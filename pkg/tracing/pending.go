package tracing

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// pending is a span that is given its attributes all at once, when it ends: an
// SDK copies what it has with each that is added.
type pending struct {
	trace.Span

	attributes *[]attribute.KeyValue // nil: it has ended
}

// mostAttributes is how many a span has, about.
const mostAttributes = 16

var spare = sync.Pool{New: func() any {
	attributes := make([]attribute.KeyValue, 0, mostAttributes)
	return &attributes
}}

func hold(span trace.Span) *pending {
	return &pending{Span: span, attributes: spare.Get().(*[]attribute.KeyValue)} //nolint:errcheck,forcetypeassert // nothing else is put there
}

// SetAttributes implements trace.Span.
func (p *pending) SetAttributes(more ...attribute.KeyValue) {
	if p.attributes != nil {
		*p.attributes = append(*p.attributes, more...)
	}
}

// End implements trace.Span.
func (p *pending) End(options ...trace.SpanEndOption) {
	all := p.attributes
	if all == nil {
		return
	}
	p.attributes = nil
	p.Span.SetAttributes(*all...)
	clear(*all)
	*all = (*all)[:0]
	spare.Put(all)
	p.Span.End(options...)
}
