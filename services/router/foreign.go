package router

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	foreignTime  = 2 * time.Second        // for the first answer
	foreignStall = 100 * time.Millisecond // for another
)

// checkProvider refuses to serve beside somebody else who takes enqueued jobs:
// each would get some of them. Who is ours refuses a request for nothing, with a
// code; others take it, or fail without one.
func (s *Service) checkProvider(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, foreignTime)
	defer cancel()
	subject := protocol.FunctionSubject(protocol.DefaultNamespace, protocol.FunctionEnqueue)
	taken, err := mesh.Gather[json.RawMessage](ctx, s.bulk, subject, protocol.Empty{}, foreignStall)
	if len(taken) == 0 && !errors.Is(err, &protocol.Error{Code: protocol.CodeInternal}) {
		return nil
	}
	return protocol.Errorf(protocol.CodeConflict, "somebody else on this NATS serves %s (%s): jobs would go to one or the other; end that, or use another NATS", protocol.FunctionEnqueue, subject)
}
