package router

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Purge drops what the lane has of an execution. A handler that runs meanwhile
// runs on, and its outcome is superseded; what has ended and is being judged or
// recorded is dropped when that is known.
func (l *lane) Purge(execution string) {
	of := func(q *ledger.Queue) bool { return closing.ExecutionOf(q.Name) == execution }
	for e := range l.entriesIn(of) {
		l.drop(e)
	}
	l.purgeRemotes(execution)
}

// drop discards an entry of a purged execution, or of a queue that has ended,
// unless something else about it is under way.
func (l *lane) drop(e *broker.Entry) (dropped bool) {
	if e.Decided || e.Slot == settled {
		return false
	}
	d, inHand := e.Slot.(*delivery)
	switch {
	case inHand && d.stage != running:
		return false
	case inHand:
		l.release(d)
		l.free(e)
	default:
		l.unplace(e)
	}
	q := l.queueOf(e)
	delete(l.handedBack, e.Key)
	l.settle(e, q, ledger.Discarded)
	return true
}

// Known are the queues that the lane keeps something of: those with consumers
// too.
func (l *lane) Known() iter.Seq[string] { return maps.Keys(l.queues) }

// Forget gives up what the lane keeps of a queue, unless somebody works on it.
func (l *lane) Forget(name string) bool {
	q := l.queues[name]
	if q == nil {
		return true
	}
	if l.emptying(name) {
		return false
	}
	if len(q.consumers) > 0 || q.inflight+q.judging > 0 || q.staged > 0 || q.moving > 0 || q.listed || q.counts != nil {
		return false
	}
	if q.ledger != nil {
		q.ledger.Slot = nil
	}
	if q.transit != nil {
		q.transit = nil
		l.noteMove(q)
	}
	q.lane = nil // routes that lead to it look again
	delete(l.queues, name)
	delete(l.named, name)
	return true
}

// tell tells the lane what an execution is now.
func (o *openLane) tell(ctx context.Context, q protocol.CloseRequest) (protocol.CloseReply, error) {
	answers := make(chan closeAnswer, 1)
	sent := o.running.Send(call(func(l *lane) {
		err := l.closed.Tell(q, func(r protocol.CloseReply) { answers <- closeAnswer{reply: r} })
		if err != nil {
			answers <- closeAnswer{err: err}
			return
		}
		if q.State == protocol.ExecutionPurged && len(l.remotes) > 0 {
			l.Purge(q.Execution) // also where the ledger holds nothing
		}
	}))
	if !sent {
		return protocol.CloseReply{}, errMoving
	}
	select {
	case a := <-answers:
		if a.err == nil {
			a.err = o.addFar(ctx, q.Execution, &a.reply)
		}
		return a.reply, a.err
	case <-o.running.Done():
		return protocol.CloseReply{}, errMoving
	case <-ctx.Done():
		return protocol.CloseReply{}, ctx.Err()
	}
}

type closeAnswer struct {
	reply protocol.CloseReply
	err   error
}

// executions adds up what this router's lanes have by execution.
func (s *Service) executions(ctx context.Context, q protocol.ExecutionsRequest) (protocol.ExecutionCountsPage, error) {
	found, err := gather(ctx, s, func(l *lane) []protocol.QueueInfo { return l.list(protocol.QueuesRequest{}) })
	if err != nil {
		return protocol.ExecutionCountsPage{}, err
	}
	page := books.ByExecution(slices.Concat(found...), q)
	if s.hasBrokers() {
		if page, err = s.withFar(ctx, slices.Concat(found...), page); err != nil {
			return page, err
		}
	}
	page.Instance, page.Share = s.o.Instance, s.share(len(found))
	return page, nil
}

// withFar is a page with what brokers hold of the executions on it.
func (s *Service) withFar(ctx context.Context, queues []protocol.QueueInfo, page protocol.ExecutionCountsPage) (protocol.ExecutionCountsPage, error) {
	listed := make(map[string]bool, len(page.Executions))
	for i := range page.Executions {
		listed[page.Executions[i].Execution] = true
	}
	queues = slices.DeleteFunc(queues, func(q protocol.QueueInfo) bool { return !listed[closing.ExecutionOf(q.Queue)] })
	if err := s.lookFar(ctx, queues); err != nil {
		return page, err
	}
	more := page.More
	page = books.ByExecution(queues, protocol.ExecutionsRequest{Limit: max(1, len(listed))})
	page.More = more
	return page, nil
}

// closedNext is when the lane's next tombstone ends, on the service's clock.
func (l *lane) closedNext() int64 {
	if l.tombEnd.IsZero() {
		return l.now + int64(idle)
	}
	return l.now + int64(l.tombEnd.Sub(time.Unix(0, l.wall)))
}
