package dlq

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// library is how the service's spans call it.
const library = "github.com/waybill-mq/waybill/services/dlq"

// died tells that a message has become a dead letter.
func (d *drawer) died(m *ledger.Message, meta *ledger.Meta) {
	if d.tracer == nil || meta.Spans == "" {
		return
	}
	d.tracer.Dead(meta.Spans, tracing.PlaceOf(meta.Queue),
		tracing.Message{ID: m.ID.String(), Size: len(m.Body), Attempt: meta.Attempt, Generation: meta.Generation},
		time.Unix(0, meta.LastFailure), meta.Reason)
}

// acted tells of what is done to a letter, below the span of whoever does it,
// and returns what its next attempt refers to.
func (d *drawer) acted(by trace.SpanContext, action string, e *ledger.Entry) (spans string) {
	spans, _ = d.ledger.Traced(e)
	if d.tracer == nil || spans == "" {
		return spans
	}
	return d.tracer.Acted(by, action, spans, tracing.PlaceOf(e.Queue.Name), tracing.Message{ID: e.ID.String(), Generation: e.Generation})
}

// redriveOf is the redrive's span of what acted returned, nil if it has none.
func redriveOf(spans string) []byte {
	if refs := tracing.Refs(spans); len(refs) > 1 {
		return []byte(tracing.Ref(refs[1]))
	}
	return nil
}
