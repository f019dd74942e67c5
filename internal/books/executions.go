package books

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Executions adds up the queues of the open ledgers by execution.
func Executions[O Owner[O]](ctx context.Context, b *Books[O], q protocol.ExecutionsRequest, fill func(info *protocol.QueueInfo, idle int64)) (protocol.ExecutionCountsPage, error) {
	found, err := each(ctx, b, func(owner O) []protocol.QueueInfo { return queuesOf(owner, protocol.QueuesRequest{}, fill) })
	if err != nil {
		return protocol.ExecutionCountsPage{}, err
	}
	page := ByExecution(slices.Concat(found...), q)
	page.Ledgers = len(found)
	return page, nil
}

// ByExecution adds up queues by execution; those of none are left out. A queue
// of several ledgers counts once.
func ByExecution(queues []protocol.QueueInfo, q protocol.ExecutionsRequest) protocol.ExecutionCountsPage {
	slices.SortFunc(queues, func(a, b protocol.QueueInfo) int { return cmp.Compare(a.Queue, b.Queue) })
	sums := map[string]*protocol.ExecutionCounts{}
	last := ""
	for i := range queues {
		info := &queues[i]
		execution := closing.ExecutionOf(info.Queue)
		if execution == "" || execution <= q.After {
			continue
		}
		sum := sums[execution]
		if sum == nil {
			sum = &protocol.ExecutionCounts{Execution: execution}
			sums[execution] = sum
		}
		if info.Queue != last {
			sum.Queues++
			last = info.Queue
		}
		sum.Ready += info.Ready
		sum.InFlight += info.InFlight
		sum.Waiting += info.Waiting
		sum.Dead += info.Dead
		sum.Unknown = cmp.Or(sum.Unknown, info.Unknown)
		sum.Moving += info.Moving
		sum.Bytes += info.Bytes
		sum.Consumers += int64(info.Consumers)
	}
	return page(sums, q.Limit)
}

func page(sums map[string]*protocol.ExecutionCounts, limit int) protocol.ExecutionCountsPage {
	p := protocol.ExecutionCountsPage{Executions: make([]protocol.ExecutionCounts, 0, len(sums))}
	for _, sum := range sums {
		p.Executions = append(p.Executions, *sum)
	}
	slices.SortFunc(p.Executions, func(a, b protocol.ExecutionCounts) int { return strings.Compare(a.Execution, b.Execution) })
	if limit <= 0 {
		limit = defaultQueues
	}
	if len(p.Executions) > limit {
		p.Executions, p.More = p.Executions[:limit:limit], true
	}
	return p
}

// Closer is an Owner that knows closed executions.
type Closer[O any] interface {
	Owner[O]
	// Tombs are the closed executions its ledger knows of.
	Tombs() *closing.Closed
}

// CloseQuestion is what the registry tells the owner of a ledger.
func CloseQuestion[O Closer[O]]() Question[O, protocol.CloseRequest, protocol.CloseReply] {
	return Question[O, protocol.CloseRequest, protocol.CloseReply]{
		Verb: protocol.VerbClose,
		Reply: func(ctx context.Context, book *Book[O], q protocol.CloseRequest) (protocol.CloseReply, error) {
			a, err := Await(ctx, book, func(owner O, answer func(closeAnswer)) {
				err := owner.Tombs().Tell(q, func(r protocol.CloseReply) { answer(closeAnswer{reply: r}) })
				if err != nil {
					answer(closeAnswer{err: err})
				}
			})
			if err == nil {
				err = a.err
			}
			return a.reply, err
		},
	}
}

type closeAnswer struct {
	reply protocol.CloseReply
	err   error
}
