package registry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// closeTimeout bounds a close that is asked for; what is left of it then is done
// later.
const closeTimeout = 20 * time.Second

// executions are the closed executions as the bucket has them.
type executions struct {
	mu   sync.Mutex
	docs map[string]*executionDoc
	// told is the number of ledgers of each service, once it is known.
	told map[string]int
	// busy are those that are being closed, reopened or looked after here.
	busy map[string]chan struct{}
}

// turn waits until nobody else here closes, reopens or looks after an execution, and
// keeps others from it until done: what one of them tells the ledgers must not come
// after what the other was answered.
func (x *executions) turn(ctx context.Context, id string) (done func(), err error) {
	own := make(chan struct{})
	for {
		x.mu.Lock()
		other := x.busy[id]
		if other == nil {
			x.busy[id] = own
		}
		x.mu.Unlock()
		if other == nil {
			return func() { x.leave(id, own) }, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (x *executions) leave(id string, own chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.busy, id)
	close(own)
}

// current says whether a record is what is known of its execution.
func (x *executions) current(doc *executionDoc) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.docs[doc.Execution.Execution] == doc
}

// see takes a record, if it is newer than what is known.
func (x *executions) see(id string, revision uint64, doc *executionDoc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.docs[id]; old != nil && old.revision > revision {
		return
	}
	if doc == nil {
		delete(x.docs, id)
		return
	}
	doc.revision = revision
	x.docs[id] = doc
}

// all are the records in order of id.
func (x *executions) all() []*executionDoc {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]*executionDoc, 0, len(x.docs))
	for _, doc := range x.docs {
		all = append(all, doc)
	}
	slices.SortFunc(all, func(a, b *executionDoc) int { return strings.Compare(a.Execution.Execution, b.Execution.Execution) })
	return all
}

// executionsPage answers SubjectExecutions.
func (s *Service) executionsPage(_ context.Context, q protocol.ExecutionsRequest) (protocol.ExecutionsPage, error) {
	page := protocol.ExecutionsPage{Executions: []protocol.Execution{}}
	limit, err := pageSize(q.Limit)
	if err != nil {
		return page, err
	}
	for _, doc := range s.closed.all() {
		switch {
		case doc.Execution.Execution <= q.After:
		case len(page.Executions) == limit:
			page.More = true
			return page, nil
		default:
			page.Executions = append(page.Executions, doc.Execution)
		}
	}
	return page, nil
}

// closeExecution closes an execution: it is answered when every ledger of the
// mesh refuses what is new, and, of a purge, what was there is dropped as far as
// that was possible in time.
func (s *Service) closeExecution(ctx context.Context, q protocol.ExecutionCloseRequest) (protocol.Execution, error) {
	if err := scope.CheckExecution(q.Execution); err != nil {
		return protocol.Execution{}, err
	}
	done, err := s.closed.turn(ctx, q.Execution)
	if err != nil {
		return protocol.Execution{}, err
	}
	defer done()
	doc, err := s.recordClose(ctx, q)
	if err != nil {
		return protocol.Execution{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if doc.State == protocol.ExecutionGone {
		return doc.Execution, nil
	}
	sum, err := s.tellClosed(ctx, doc)
	if err != nil {
		return protocol.Execution{}, err
	}
	for doc.State == protocol.ExecutionPurged && sum.Live > 0 && sum.Unknown == "" && mesh.Pause(ctx, tellAgain) {
		if sum, err = s.tellClosed(ctx, doc); err != nil {
			return protocol.Execution{}, err
		}
	}
	answer := doc.Execution
	answer.Left, answer.Unknown = sum.Live, sum.Unknown
	if sum.Live == 0 {
		if buried, err := s.bury(ctx, doc); err == nil && buried != nil {
			answer = buried.Execution
		}
	}
	return answer, nil
}

// recordClose writes that an execution is closed, or purged.
func (s *Service) recordClose(ctx context.Context, q protocol.ExecutionCloseRequest) (*executionDoc, error) {
	for {
		doc, err := s.store.execution(ctx, q.Execution)
		if err != nil {
			return nil, err
		}
		switch {
		case doc == nil:
			doc = &executionDoc{Execution: protocol.Execution{
				Execution: q.Execution, State: protocol.ExecutionClosed, ClosedAt: time.Now().UTC(),
			}}
		case doc.State == protocol.ExecutionGone, doc.State == protocol.ExecutionPurged, !q.Purge:
			return doc, nil
		}
		if q.Purge {
			doc.State = protocol.ExecutionPurged
		}
		if err := s.putExecution(ctx, doc); !errors.Is(err, errMoved) {
			return doc, err
		}
	}
}

func (s *Service) putExecution(ctx context.Context, doc *executionDoc) error {
	if err := s.store.putExecution(ctx, doc); err != nil {
		return err
	}
	s.closed.see(doc.Execution.Execution, doc.revision, doc)
	return nil
}

// reopenExecution lets a closed execution take publishes again.
func (s *Service) reopenExecution(ctx context.Context, q protocol.ExecutionReopenRequest) (protocol.Empty, error) {
	if err := scope.CheckExecution(q.Execution); err != nil {
		return protocol.Empty{}, err
	}
	done, err := s.closed.turn(ctx, q.Execution)
	if err != nil {
		return protocol.Empty{}, err
	}
	defer done()
	doc, err := s.store.execution(ctx, q.Execution)
	if err != nil {
		return protocol.Empty{}, err
	}
	if doc == nil {
		return protocol.Empty{}, protocol.Errorf(protocol.CodeNotFound, "the execution %s is not closed", q.Execution)
	}
	return protocol.Empty{}, s.reopen(ctx, doc)
}

// reopen removes the record first: whoever looks at closed executions meanwhile
// must not close it again.
func (s *Service) reopen(ctx context.Context, doc *executionDoc) error {
	id := doc.Execution.Execution
	if err := s.store.dropExecution(ctx, id); err != nil {
		return err
	}
	s.closed.see(id, doc.revision, nil)
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if _, err := s.tell(ctx, protocol.CloseRequest{Execution: id, State: protocol.ExecutionOpen}); err != nil {
		return errors.Join(err, s.putExecution(context.WithoutCancel(ctx), &executionDoc{Head: doc.Head, Execution: doc.Execution}))
	}
	return s.rise(ctx, id)
}
