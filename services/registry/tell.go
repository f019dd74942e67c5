package registry

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// tellAgain is the pause before who has no owner, or is not done, is told again.
const tellAgain = 50 * time.Millisecond

// requestOf is what a ledger is told of an execution.
func requestOf(doc *executionDoc) protocol.CloseRequest {
	q := protocol.CloseRequest{Execution: doc.Execution.Execution, State: doc.State}
	if doc.State == protocol.ExecutionGone {
		q.State, q.Until, q.Forget = protocol.ExecutionClosed, doc.Until.UnixNano(), true
	}
	return q
}

// tell tells every ledger of the mesh, and adds their answers up. It is
// UNAVAILABLE if one of them has no owner for as long as ctx lasts.
func (s *Service) tell(ctx context.Context, q protocol.CloseRequest) (sum protocol.CloseReply, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for service, prefix := range map[string]string{
		"router": protocol.SubjectLane, "retry": protocol.SubjectWaitingLedger, "dlq": protocol.SubjectDeadLedger,
	} {
		n, err := s.ledgers(ctx, service)
		if err != nil {
			return sum, errors.Join(err, group.Wait())
		}
		for i := range n {
			group.Go(func() error {
				r, err := s.tellOne(ctx, prefix+ledger.Name(service, i)+"."+protocol.VerbClose, q)
				mu.Lock()
				defer mu.Unlock()
				sum.Live += r.Live
				sum.Queues += r.Queues
				sum.Arrived += r.Arrived
				sum.Epoch += r.Epoch
				sum.Unknown = cmp.Or(sum.Unknown, r.Unknown)
				return err
			})
		}
	}
	return sum, group.Wait()
}

// tellClosed tells every ledger that an execution is closed. Should it have been
// reopened meanwhile, they are told that too, lest they stay closed: CONFLICT.
func (s *Service) tellClosed(ctx context.Context, doc *executionDoc) (sum protocol.CloseReply, err error) {
	id := doc.Execution.Execution
	if sum, err = s.tell(ctx, requestOf(doc)); err != nil {
		return sum, err
	}
	now, err := s.store.execution(ctx, id)
	if err != nil || now != nil {
		return sum, err
	}
	if _, err := s.tell(ctx, protocol.CloseRequest{Execution: id, State: protocol.ExecutionOpen}); err != nil {
		return sum, err
	}
	return sum, protocol.Errorf(protocol.CodeConflict, "the execution %s was reopened meanwhile: close it again", id)
}

// tellOne tells the owner of one ledger, and again while it has none.
func (s *Service) tellOne(ctx context.Context, subject string, q protocol.CloseRequest) (r protocol.CloseReply, err error) {
	for {
		r, err = mesh.Request[protocol.CloseReply](ctx, s.nc, subject, q)
		if protocol.CodeOf(err) != protocol.CodeUnavailable || !mesh.Pause(ctx, tellAgain) {
			return r, err
		}
	}
}

// ledgers is how many ledgers a service has; none before its first start.
func (s *Service) ledgers(ctx context.Context, service string) (int, error) {
	s.closed.mu.Lock()
	n := s.closed.told[service]
	s.closed.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	n, err := ledger.Count(ctx, s.store.js, service)
	if protocol.CodeOf(err) == protocol.CodeNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, unavailable(err)
	}
	s.closed.mu.Lock()
	defer s.closed.mu.Unlock()
	s.closed.told[service] = n
	return n, nil
}
