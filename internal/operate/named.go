package operate

import (
	"cmp"
	"context"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// NamedQueue is a named queue, and what is in it.
type NamedQueue struct {
	protocol.DefinedQueue

	Holds protocol.QueueInfo `json:"holds"`
}

// ShowNamed is a named queue. NOT_FOUND: there is none of that name.
func ShowNamed(ctx context.Context, nc *nats.Conn, name string) (*NamedQueue, error) {
	if err := scope.CheckQueue(name); err != nil {
		return nil, err
	}
	defined, err := mesh.Request[protocol.DefinitionsPage](ctx, nc, protocol.SubjectDefinitions, protocol.DefinitionsRequest{Queue: name, Effective: true})
	if err != nil {
		return nil, err
	}
	if len(defined.Queues) == 0 {
		return nil, protocol.Errorf(protocol.CodeNotFound, "there is no named queue %s: define it (waybill queue define)", name)
	}
	q := &NamedQueue{DefinedQueue: defined.Queues[0], Holds: protocol.QueueInfo{Queue: scope.JobsQueue(name), Named: name}}
	page, err := Queues(ctx, nc, protocol.QueuesRequest{Queue: q.Holds.Queue})
	if err == nil && len(page.Queues) > 0 {
		q.Holds = page.Queues[0]
	}
	return q, cmp.Or(err, page.Missing.Err())
}

// NamedQueues are the definitions of all named queues, in order of name.
func NamedQueues(ctx context.Context, nc *nats.Conn) ([]protocol.DefinedQueue, error) {
	all := []protocol.DefinedQueue{}
	for {
		q := protocol.DefinitionsRequest{}
		if len(all) > 0 {
			q.After = all[len(all)-1].Queue
		}
		page, err := mesh.Request[protocol.DefinitionsPage](ctx, nc, protocol.SubjectDefinitions, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Queues...)
		if !page.More || len(page.Queues) == 0 {
			return all, nil
		}
	}
}
