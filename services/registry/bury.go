package registry

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	buryEvery   = 5 * time.Second // closed executions are looked at
	forgetTries = 40              // with tellAgain in between
)

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
	again, err := s.tellClosed(ctx, doc)
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

// forget has everybody forget an execution that is gone, and notes when they have.
func (s *Service) forget(ctx context.Context, doc *executionDoc) error {
	id := doc.Execution.Execution
	if err := s.rest(ctx, id); err != nil {
		return err
	}
	if err := s.store.dropPolicies(ctx, id); err != nil {
		return err
	}
	for range forgetTries {
		sum, err := s.tellClosed(ctx, doc)
		if err != nil {
			return err
		}
		if sum.Queues == 0 {
			return s.forgotten(ctx, doc)
		}
		if !mesh.Pause(ctx, tellAgain) {
			return ctx.Err()
		}
	}
	return nil // the next look goes on
}

func (s *Service) forgotten(ctx context.Context, doc *executionDoc) error {
	if doc.Forgotten {
		return nil
	}
	next := *doc
	next.Forgotten = true
	err := s.putExecution(ctx, &next)
	if errors.Is(err, errMoved) {
		return nil // another registry has noted it, or it is reopened
	}
	return err
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
	done, err := s.closed.turn(ctx, doc.Execution.Execution)
	if err != nil {
		return err
	}
	defer done()
	switch {
	case !s.closed.current(doc):
		return nil // it has changed meanwhile: the next look is at that
	case doc.State != protocol.ExecutionGone:
		_, err := s.bury(ctx, doc)
		return err
	case time.Now().After(doc.Until):
		return s.reopen(ctx, doc) // its tombstones have ended by themselves
	case !doc.Forgotten || worked[doc.Execution.Execution]:
		return s.forget(ctx, doc)
	}
	return nil
}
