package registry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	closeTimeout = 20 * time.Second // of a close that is asked for; what is left of it is done later
	buryEvery    = 5 * time.Second  // closed executions are looked at
	tellAgain    = 50 * time.Millisecond
	forgetTries  = 40 // with tellAgain in between
)

// executions are the closed executions as the bucket has them.
type executions struct {
	mu   sync.Mutex
	docs map[string]*executionDoc
	// told is the number of ledgers of each service, once it is known.
	told map[string]int
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
	for doc.State == protocol.ExecutionPurged && sum.Live > 0 && pause(ctx, tellAgain) {
		if sum, err = s.tell(ctx, requestOf(doc)); err != nil {
			return protocol.Execution{}, err
		}
	}
	answer := doc.Execution
	answer.Left = sum.Live
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
		if protocol.CodeOf(err) != protocol.CodeUnavailable || !pause(ctx, tellAgain) {
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

// bury forgets a closed execution of which nothing is left: its queues and
// their counters, its policies and registrations. nil: something is left. Since
// the ledgers are asked one after another, a message may move past all the
// questions: nothing is left when nothing was seen twice and nothing arrived in
// between.
func (s *Service) bury(ctx context.Context, doc *executionDoc) (*executionDoc, error) {
	first, err := s.tellClosed(ctx, doc)
	if err != nil || first.Live > 0 {
		return nil, err
	}
	again, err := s.tell(ctx, requestOf(doc))
	if err != nil || again.Live > 0 || again.Arrived != first.Arrived || again.Epoch != first.Epoch {
		return nil, err
	}
	end := &executionDoc{Head: doc.Head, Execution: doc.Execution, revision: doc.revision}
	end.State, end.Until = protocol.ExecutionGone, time.Now().UTC().Add(s.o.Tombstone)
	if err := s.putExecution(ctx, end); err != nil {
		return nil, err
	}
	return end, s.forget(ctx, end)
}

// forget has everybody forget an execution that is gone.
func (s *Service) forget(ctx context.Context, doc *executionDoc) error {
	id := doc.Execution.Execution
	if err := s.rest(ctx, id); err != nil {
		return err
	}
	if err := s.store.dropPolicies(ctx, id); err != nil {
		return err
	}
	for range forgetTries {
		sum, err := s.tell(ctx, requestOf(doc))
		if err != nil || sum.Queues == 0 {
			return err
		}
		if !pause(ctx, tellAgain) {
			return ctx.Err()
		}
	}
	return nil // the next look goes on
}

// reopenExecution lets a closed execution take publishes again.
func (s *Service) reopenExecution(ctx context.Context, q protocol.ExecutionReopenRequest) (protocol.Empty, error) {
	if err := scope.CheckExecution(q.Execution); err != nil {
		return protocol.Empty{}, err
	}
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

// buryAll looks at closed executions again and again: it finishes what a close
// left to be done, and ends tombstones whose time is over.
func (s *Service) buryAll(ctx context.Context) {
	tick := time.NewTicker(min(buryEvery, s.o.Tombstone/4))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		worked := s.known.worked()
		for _, doc := range s.closed.all() {
			if err := s.look(ctx, doc, worked); err != nil && ctx.Err() == nil {
				s.log.Debug("a closed execution could not be looked after", "execution", doc.Execution.Execution, "error", err)
			}
		}
	}
}

func (s *Service) look(ctx context.Context, doc *executionDoc, worked map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	switch {
	case doc.State != protocol.ExecutionGone:
		_, err := s.bury(ctx, doc)
		return err
	case time.Now().After(doc.Until):
		return s.reopen(ctx, doc) // its tombstones have ended by themselves
	case worked[doc.Execution.Execution]:
		return s.forget(ctx, doc)
	}
	return nil
}

// watchExecutions keeps the closed executions in line with the bucket.
func (s *Service) watchExecutions(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.watchExecutionsOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("closed executions cannot be watched; trying again", "error", err)
			pause(ctx, watchPause)
		}
	}
}

func (s *Service) watchExecutionsOnce(ctx context.Context) error {
	missing := map[string]uint64{}
	for _, doc := range s.closed.all() {
		missing[doc.Execution.Execution] = doc.revision
	}
	w, err := s.store.kv.Watch(ctx, executionKey+">")
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // fails only with the connection gone
	end := time.NewTimer(rereadEvery)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case entry, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("the watch has ended")
			case entry == nil:
				for id, revision := range missing {
					s.closed.see(id, revision, nil)
				}
			default:
				delete(missing, strings.TrimPrefix(entry.Key(), executionKey))
				s.seeExecution(entry)
			}
		}
	}
}

func (s *Service) seeExecution(entry jetstream.KeyValueEntry) {
	id := strings.TrimPrefix(entry.Key(), executionKey)
	if entry.Operation() != jetstream.KeyValuePut {
		s.closed.see(id, entry.Revision(), nil)
		return
	}
	doc, err := readExecution(entry)
	if err != nil {
		s.log.Warn("the record of an execution cannot be used", "execution", id, "error", err)
		return
	}
	s.closed.see(id, doc.revision, doc)
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
