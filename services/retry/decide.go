package retry

import (
	"context"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/retry/policy"
)

// decide answers what becomes of deliveries. It remembers nothing, so a router
// whose answer was lost asks again.
func decide(_ context.Context, q protocol.DecideRequest) (protocol.DecideReply, error) {
	can, err := policy.ParseVerdicts(q.Verdicts)
	if err != nil {
		return protocol.DecideReply{}, err
	}
	reply := protocol.DecideReply{Items: make([]protocol.Decision, len(q.Items))}
	for i, item := range q.Items {
		reply.Items[i] = policy.Decide(item, can)
	}
	return reply, nil
}
