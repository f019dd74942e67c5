package mesh

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/tracing"
)

// traced is a request with the trace of ctx, if there is one.
func traced(ctx context.Context, subject string, body []byte) *nats.Msg {
	msg := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	tracing.Inject(ctx, tracing.Headers(msg.Header))
	return msg
}

// inTrace is ctx in the trace of a request, if it has one.
func inTrace(ctx context.Context, msg *nats.Msg) context.Context {
	if len(msg.Header) == 0 {
		return ctx
	}
	return tracing.Extract(ctx, tracing.Headers(msg.Header))
}
