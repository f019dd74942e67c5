package gateway

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// library is how the gateway's spans call it.
const library = "github.com/waybill-mq/waybill/services/gateway"

// contextHeaders are those of a trace.
var contextHeaders = []string{protocol.HeaderTraceparent, protocol.HeaderTracestate, protocol.HeaderBaggage}

// inTrace serves each request in the trace that its headers name.
func inTrace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := tracing.Headers{}
		for _, name := range contextHeaders {
			if value := r.Header.Get(name); value != "" {
				h[name] = []string{value}
			}
		}
		protocol.CleanTrace(h)
		if len(h) > 0 {
			r = r.WithContext(tracing.Extract(r.Context(), h))
		}
		next.ServeHTTP(w, r)
	})
}

// inSpan leaves a message's trace to the span of its publish, which the client
// makes below the request's; without spans it is the request's own.
func (s *Service) inSpan(ctx context.Context, m *client.Message) {
	if s.tracer == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	for _, name := range contextHeaders {
		delete(m.Headers, name)
	}
}
