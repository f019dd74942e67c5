package registry

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

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
