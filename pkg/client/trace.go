package client

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// w3c carries traceparent, tracestate and baggage, whatever propagators the
// program has set for its own.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// injectTrace adds the trace of ctx to a message that carries none.
func injectTrace(ctx context.Context, msg *nats.Msg) {
	if !trace.SpanContextFromContext(ctx).IsValid() || headerOf(msg, protocol.HeaderTraceparent) != "" {
		return
	}
	w3c.Inject(ctx, carrier{msg})
}

// extractTrace is ctx with the message's trace as its remote parent.
func extractTrace(ctx context.Context, msg *nats.Msg) context.Context {
	if headerOf(msg, protocol.HeaderTraceparent) == "" {
		return ctx
	}
	return w3c.Extract(ctx, carrier{msg})
}

// carrier reads and writes headers with their case as it is: the mesh's are in
// lower case, as W3C has them.
type carrier struct{ msg *nats.Msg }

func (c carrier) Get(key string) string { return headerOf(c.msg, key) }

func (c carrier) Set(key, value string) {
	if key == protocol.HeaderBaggage && len(value) > protocol.MaxBaggage {
		return
	}
	setHeader(c.msg, key, value)
}

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c.msg.Header))
	for k := range c.msg.Header {
		keys = append(keys, k)
	}
	return keys
}
