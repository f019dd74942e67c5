package operate

import (
	"cmp"
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// ExecutionInfo is an execution with what is in it.
type ExecutionInfo struct {
	protocol.ExecutionCounts

	State protocol.ExecutionState `json:"state"`
	Until time.Time               `json:"until,omitzero"` // of one that is gone: when the id is free again
}

// ExecutionPage is a page of executions, in order of id.
type ExecutionPage struct {
	Executions []ExecutionInfo `json:"executions"`
	More       bool            `json:"more,omitempty"`
	Missing    Missing         `json:"missing,omitempty"` // as in QueuePage
}

// Executions is what the services know of executions together, those that are
// closed included: the page after q.After. UNAVAILABLE: a service does not
// answer.
func Executions(ctx context.Context, nc *nats.Conn, q protocol.ExecutionsRequest) (ExecutionPage, error) {
	q.Limit = pageLimit(q.Limit)
	parts, missing, err := askAll(ctx, []source[ExecutionInfo]{
		gathered(nc, "router", protocol.SubjectRouterExecutions, q, counted),
		gathered(nc, "retry", protocol.SubjectRetryExecutions, q, counted),
		gathered(nc, "dlq", protocol.SubjectDeadExecutions, q, counted),
		{"registry", func(ctx context.Context) ([]part[ExecutionInfo], error) { return closed(ctx, nc, q) }},
	})
	if err != nil {
		return ExecutionPage{}, err
	}
	page := ExecutionPage{Missing: missing}
	page.Executions, page.More = merged(parts, func(e *ExecutionInfo) string { return e.Execution }, addExecution, q.Limit)
	return page, nil
}

// AllExecutions are all of them, as one page.
func AllExecutions(ctx context.Context, nc *nats.Conn) (ExecutionPage, error) {
	all := ExecutionPage{Executions: []ExecutionInfo{}}
	for q := (protocol.ExecutionsRequest{}); ; {
		page, err := Executions(ctx, nc, q)
		if err != nil {
			return all, err
		}
		all.Missing = all.Missing.with(page.Missing)
		all.Executions = append(all.Executions, page.Executions...)
		if !page.More || len(page.Executions) == 0 {
			return all, nil
		}
		q.After = all.Executions[len(all.Executions)-1].Execution
	}
}

// Knows says whether anything is known of an execution: a queue of it, or that
// it was closed.
func Knows(ctx context.Context, nc *nats.Conn, id string) (bool, error) {
	page, err := Executions(ctx, nc, protocol.ExecutionsRequest{After: before(id), Limit: 1})
	known := len(page.Executions) > 0 && page.Executions[0].Execution == id
	if !known && err == nil {
		err = page.Missing.Err()
	}
	return known, err
}

// before is a text between an id and all ids before it.
func before(id string) string {
	last := len(id) - 1
	return id[:last] + string(id[last]-1) + "\x7f"
}

// closed are the executions that are not open, without counts.
func closed(ctx context.Context, nc *nats.Conn, q protocol.ExecutionsRequest) ([]part[ExecutionInfo], error) {
	page, err := mesh.Request[protocol.ExecutionsPage](ctx, nc, protocol.SubjectExecutions, q)
	if err != nil {
		return nil, err
	}
	p := part[ExecutionInfo]{more: page.More}
	for _, e := range page.Executions {
		one := ExecutionInfo{State: e.State, Until: e.Until}
		one.Execution = e.Execution
		p.items = append(p.items, one)
	}
	return []part[ExecutionInfo]{p}, nil
}

func counted(page protocol.ExecutionCountsPage) part[ExecutionInfo] {
	p := part[ExecutionInfo]{more: page.More, share: page.Share}
	for _, c := range page.Executions {
		p.items = append(p.items, ExecutionInfo{ExecutionCounts: c, State: protocol.ExecutionOpen})
	}
	return p
}

func addExecution(sum, e *ExecutionInfo) {
	if e.State != protocol.ExecutionOpen {
		sum.State, sum.Until = e.State, e.Until
	}
	sum.Queues = max(sum.Queues, e.Queues)
	sum.Ready += e.Ready
	sum.InFlight += e.InFlight
	sum.Waiting += e.Waiting
	sum.Dead += e.Dead
	sum.Unknown = cmp.Or(sum.Unknown, e.Unknown)
	sum.Moving += e.Moving
	sum.Bytes += e.Bytes
	sum.Consumers += e.Consumers
}
