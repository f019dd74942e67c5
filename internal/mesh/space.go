package mesh

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Space is what the disk of NATS has left, and its size, in bytes, if NATS is a
// program of the mesh's own (`waybill nats`), which leaves it to the services to
// stop in time. UNAVAILABLE: it is not, or does not answer.
func Space(ctx context.Context, nc *nats.Conn) (free, total int64, err error) {
	s, err := Request[protocol.Space](ctx, nc, protocol.SubjectSpace, protocol.Empty{})
	return s.Free, s.Total, err
}
