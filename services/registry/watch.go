package registry

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	rereadEvery = time.Minute // all records are read anew
	watchPause  = time.Second // between a watch that ended and the next
)

// watch keeps the directory in line with the bucket, which other registries
// write too. Each watch begins with all records, so that a change which was
// missed, however it was, is made good. first is called after each first
// reading.
func (s *Service) watch(ctx context.Context, first func()) {
	for ctx.Err() == nil {
		err := s.watchOnce(ctx, first)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if s.watching.Swap(false) {
			s.log.Warn("worker records cannot be watched; trying again until they can", "error", err)
		}
		t := time.NewTimer(watchPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

func (s *Service) watchOnce(ctx context.Context, first func()) error {
	missing := s.known.revisions()
	w, err := s.store.kv.Watch(ctx, workerKey+">")
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // fails only with the connection gone
	end := time.NewTimer(rereadEvery)
	defer end.Stop()
	reading := true // what there was when the watch began
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
					s.drop(id, revision)
				}
				reading = false
				s.watching.Store(true)
				first()
			default:
				delete(missing, idOf(entry.Key()))
				s.see(ctx, entry, reading)
			}
		}
	}
}

// see takes one record from the bucket. One that says Gone and was left behind
// is removed.
func (s *Service) see(ctx context.Context, entry jetstream.KeyValueEntry, leftBehind bool) {
	id := idOf(entry.Key())
	if entry.Operation() != jetstream.KeyValuePut {
		s.drop(id, entry.Revision())
		return
	}
	doc, err := readWorker(entry)
	if err != nil {
		s.log.Warn("a worker's record cannot be used", "worker", id, "error", err)
		return
	}
	if s.known.apply(doc) {
		s.hear(doc)
	}
	if doc.Gone && leftBehind {
		s.clearAway(ctx, doc)
	}
}

// drop takes out a worker that has no record any more.
func (s *Service) drop(id string, revision uint64) {
	if s.known.drop(id, revision) {
		s.alive.forget(id)
	}
}
