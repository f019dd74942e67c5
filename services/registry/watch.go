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
	missing, began := s.known.revisions(), time.Now()
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
				s.known.forgetEnded(began)
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
	s.leave(ctx, doc)
	if doc.Gone && leftBehind {
		s.clearAway(ctx, doc)
	}
}

// leave ends what a worker had declared before the Bye that its record tells of,
// should that have come in since.
func (s *Service) leave(ctx context.Context, doc *workerDoc) {
	s.known.leave(doc.ID, doc.Left)
	late := s.known.worker(doc.ID)
	if late == nil || !s.known.left(late.ID, late.Revision) {
		return
	}
	if _, err := s.gone(ctx, late, doc.Left); err != nil && !errors.Is(err, errMoved) {
		s.log.Warn("a worker that has left could not be taken out; it is when it was silent for long enough", "worker", late.ID, "error", err)
	}
}

// drop takes out a worker that has no record any more.
func (s *Service) drop(id string, revision uint64) {
	if s.known.drop(id, revision) {
		s.alive.forget(id)
		s.confirmed.forget(id)
	}
}
