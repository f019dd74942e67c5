package operate

import (
	"cmp"
	"context"
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// QueuePage is a page of queues with what is in them, in order of name.
type QueuePage struct {
	Queues []protocol.QueueInfo `json:"queues"`
	More   bool                 `json:"more,omitempty"`
	// Missing are parts of the services that have not answered in time: what these have
	// is not listed, and not counted.
	Missing Missing `json:"missing,omitempty"`
}

// Queues is what router, retry and dlq know of queues together: the page after
// q.After. UNAVAILABLE: one of them does not answer.
func Queues(ctx context.Context, nc *nats.Conn, q protocol.QueuesRequest) (QueuePage, error) {
	q.Limit = pageLimit(q.Limit)
	parts, missing, err := askAll(ctx, []source[protocol.QueueInfo]{
		gathered(nc, "router", protocol.SubjectQueues, q, queuesOf),
		gathered(nc, "retry", protocol.SubjectWaitingQueues, q, queuesOf),
		gathered(nc, "dlq", protocol.SubjectDeadQueues, q, queuesOf),
	})
	if err != nil {
		return QueuePage{}, err
	}
	page := QueuePage{Missing: missing}
	page.Queues, page.More = merged(parts, func(q *protocol.QueueInfo) string { return q.Queue }, addQueue, q.Limit)
	return page, nil
}

func queuesOf(p protocol.QueuesPage) part[protocol.QueueInfo] {
	return part[protocol.QueueInfo]{p.Queues, p.More, p.Share}
}

// AllQueues are all queues, or with execution those of it, as one page.
func AllQueues(ctx context.Context, nc *nats.Conn, execution string) (QueuePage, error) {
	return allPages(ctx, nc, protocol.QueuesRequest{Execution: execution}, nil)
}

// allPages are the queues that q asks for, up to the first that wanted, if it is
// given, is false for.
func allPages(ctx context.Context, nc *nats.Conn, q protocol.QueuesRequest, wanted func(*protocol.QueueInfo) bool) (QueuePage, error) {
	all := QueuePage{Queues: []protocol.QueueInfo{}}
	for {
		page, err := Queues(ctx, nc, q)
		if err != nil {
			return all, err
		}
		all.Missing = all.Missing.with(page.Missing)
		for i := range page.Queues {
			if wanted != nil && !wanted(&page.Queues[i]) {
				return all, nil
			}
			all.Queues = append(all.Queues, page.Queues[i])
		}
		if !page.More || len(page.Queues) == 0 {
			return all, nil
		}
		q.After = all.Queues[len(all.Queues)-1].Queue
	}
}

// whole is all that q asks for; UNAVAILABLE if any of it is missing.
func whole(ctx context.Context, nc *nats.Conn, q protocol.QueuesRequest, wanted func(*protocol.QueueInfo) bool) ([]protocol.QueueInfo, error) {
	page, err := allPages(ctx, nc, q, wanted)
	return page.Queues, cmp.Or(err, page.Missing.Err())
}

// addQueue adds one service's counts of a queue to the others'.
func addQueue(sum, q *protocol.QueueInfo) {
	sum.Topic = cmp.Or(sum.Topic, q.Topic)
	if sum.DetachedAt.IsZero() {
		sum.DetachedAt = q.DetachedAt
	}
	sum.Receiving = sum.Receiving || q.Receiving
	if sum.ReceivesUntil.IsZero() {
		sum.ReceivesUntil = q.ReceivesUntil
	}
	sum.Ready += q.Ready
	sum.InFlight += q.InFlight
	sum.Waiting += q.Waiting
	sum.Dead += q.Dead
	sum.Unknown = cmp.Or(sum.Unknown, q.Unknown)
	sum.Moving += q.Moving
	sum.Bytes += q.Bytes
	sum.Consumers += q.Consumers
	sum.Type = cmp.Or(sum.Type, q.Type)
	sum.Groups += q.Groups
	sum.HeldGroups += q.HeldGroups
	sum.BlockedGroups += q.BlockedGroups
	sum.Named = cmp.Or(sum.Named, q.Named)
	sum.Unserved = append(sum.Unserved, q.Unserved...)
	counters := maps.Clone(sum.Counters)
	for name, n := range q.Counters {
		if counters == nil {
			counters = map[string]uint64{}
		}
		counters[name] += n
	}
	sum.Counters = counters
}
