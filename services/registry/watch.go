package registry

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/mesh"
)

// watch keeps the directory in line with the bucket, which other registries
// write too. first is called after each reading of all records.
func (s *Service) watch(ctx context.Context, first func()) {
	var (
		missing map[string]uint64
		began   time.Time
	)
	f := mesh.Follower{
		KV: s.store.kv, Keys: workerKey + ">",
		Begin: func() { missing, began = s.known.revisions(), time.Now() },
		See: func(ctx context.Context, entry jetstream.KeyValueEntry, leftBehind bool) {
			delete(missing, idOf(entry.Key()))
			s.see(ctx, entry, leftBehind)
		},
		Read: func() {
			for id, revision := range missing {
				s.drop(id, revision)
			}
			s.known.forgetEnded(began)
			s.watching.Store(true)
			first()
		},
		Failed: func(err error) {
			if s.watching.Swap(false) {
				s.log.Warn("worker records cannot be watched; trying again until they can", "error", err)
			}
		},
	}
	f.Run(ctx)
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
