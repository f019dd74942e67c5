package retry

import (
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// library is how the service's spans call it.
const library = "github.com/waybill-mq/waybill/services/retry"

// waited tells of a message's time on the shelf: since its failure or, of a
// scheduled one, since it was published, which is in its id.
func (s *shelf) waited(e *ledger.Entry) {
	if s.tracer == nil {
		return
	}
	spans, since := s.ledger.Traced(e)
	if spans == "" {
		return
	}
	began := time.Unix(0, since)
	if since == 0 {
		began = time.Unix(e.ID.Time().UnixTime())
	}
	s.tracer.Waited(spans, tracing.PlaceOf(e.Queue.Name), tracing.Message{ID: e.ID.String(), Generation: e.Generation}, began)
}
