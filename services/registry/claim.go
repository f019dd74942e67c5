package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// claimDoc says who observes a topic under an id. It is written before the
// worker's record, so that of two workers only one has the id, and stays when
// the observer is gone.
type claimDoc struct {
	document.Head
	Topic      string    `json:"topic"`
	ObserverID string    `json:"observer_id"`
	Worker     string    `json:"worker"`              // empty: nobody observes under it now
	WorkerName string    `json:"worker_name"`         // of the last one
	Namespace  string    `json:"namespace,omitempty"` // of it; empty: protocol.DefaultNamespace
	Since      time.Time `json:"since"`               // of the claim
	LeftAt     time.Time `json:"left_at,omitzero"`    // when the last one left
	// GivenUp: it did not leave the observer behind, but removed it.
	GivenUp bool `json:"given_up,omitempty"`
}

// isOf says whether it is, or was, that program's.
func (d *claimDoc) isOf(w *protocol.Worker) bool {
	return d.WorkerName == w.Name && cmp.Or(d.Namespace, protocol.DefaultNamespace) == namespaceOf(w)
}

func namespaceOf(w *protocol.Worker) string { return cmp.Or(w.Namespace, protocol.DefaultNamespace) }

const (
	// claimTime is how long a claim counts although the worker's record does
	// not have the observer: it may be on its way there.
	claimTime    = 5 * time.Second
	claimAgain   = 50 * time.Millisecond
	probeTimeout = time.Second
)

// isClaimed says whether one worker alone may have the subscription's queue.
func isClaimed(sub *protocol.Subscription) bool {
	return sub.Kind == protocol.KindObserve && sub.Group == ""
}

// claimAll claims the ids of the worker's observers; those that before has are
// its own already. Those that others have are taken out of its record, and
// named.
func (s *Service) claimAll(ctx context.Context, before *workerDoc, w *protocol.Worker) (refused []protocol.RefusedSubscription, err error) {
	conflicts := make(map[string]error)
	var mu sync.Mutex
	err = each(ctx, w.Subscriptions, func(ctx context.Context, sub *protocol.Subscription) error {
		if !isClaimed(sub) || before != nil && observes(before, sub.Queue) {
			return nil
		}
		err := s.claim(ctx, w, sub)
		if protocol.CodeOf(err) != protocol.CodeObserverIDConflict {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		conflicts[sub.ID] = err
		return nil
	})
	w.Subscriptions = slices.DeleteFunc(w.Subscriptions, func(sub protocol.Subscription) bool {
		conflict := conflicts[sub.ID]
		if conflict != nil {
			refused = append(refused, protocol.RefusedSubscription{Ref: sub.Ref, Error: *protocol.AsError(conflict)})
		}
		return conflict != nil
	})
	return refused, err
}

// together is how many subscriptions of a worker are seen to at once.
const together = 32

// each does something for every subscription, several at once; the first error
// ends it.
func each(ctx context.Context, subs []protocol.Subscription, do func(context.Context, *protocol.Subscription) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(together)
	for i := range subs {
		group.Go(func() error { return do(ctx, &subs[i]) })
	}
	return group.Wait()
}

// claim makes the id the worker's, or fails with OBSERVER_ID_CONFLICT.
func (s *Service) claim(ctx context.Context, w *protocol.Worker, sub *protocol.Subscription) error {
	for {
		doc, revision, err := s.store.claim(ctx, sub.Queue)
		if err != nil || doc.Worker == w.ID {
			return err
		}
		free, err := s.vacant(ctx, w, sub, &doc)
		if err != nil {
			return err
		}
		if !free {
			if !mesh.Pause(ctx, claimAgain) {
				return s.conflict(sub, &doc)
			}
			continue
		}
		doc.Topic, doc.ObserverID, doc.Worker, doc.WorkerName, doc.Namespace = sub.Topic, sub.ObserverID, w.ID, w.Name, namespaceOf(w)
		doc.Since, doc.LeftAt, doc.GivenUp = time.Now().UTC(), time.Time{}, false
		if err := s.store.putClaim(ctx, sub.Queue, &doc, revision); !errors.Is(err, errMoved) {
			return err
		}
	}
}

// vacant says whether an id may be taken over now. The same program that comes
// back after a crash need not wait until the mesh has noticed.
func (s *Service) vacant(ctx context.Context, w *protocol.Worker, sub *protocol.Subscription, doc *claimDoc) (bool, error) {
	if doc.Worker == "" {
		if !doc.isOf(w) && time.Now().Before(s.keptUntil(doc)) {
			return false, s.conflict(sub, doc)
		}
		return true, nil
	}
	holder, err := s.store.worker(ctx, doc.Worker)
	switch {
	case err != nil:
		return false, err
	case holder == nil || !observes(holder, sub.Queue):
		if time.Since(doc.Since) <= claimTime {
			return false, nil
		}
		return false, s.release(ctx, doc.Worker, sub.Queue, false) // that it left was lost
	case !doc.isOf(w) || s.answers(ctx, holder.ID):
		return false, s.conflict(sub, doc)
	}
	if _, err := s.gone(ctx, holder, 0); err != nil && !errors.Is(err, errMoved) {
		return false, err
	}
	s.log.Info("a worker that does not answer is replaced by one of the same name", "worker", holder.ID, "name", holder.Name, "by", w.ID)
	return false, nil // look again
}

// keptUntil is how long an id is kept for the program that has left it behind.
// While this registry or NATS was away it could not come back: its time begins
// again.
func (s *Service) keptUntil(doc *claimDoc) time.Time {
	if doc.GivenUp || doc.LeftAt.IsZero() {
		return time.Time{}
	}
	left := doc.LeftAt
	if back := s.alive.nobody(); back.After(left) {
		left = back
	}
	settings := s.configuration.settings()
	return left.Add(settings.ObserverGrace())
}

func observes(doc *workerDoc, queue string) bool {
	return !doc.Gone && slices.ContainsFunc(doc.Subscriptions, func(sub protocol.Subscription) bool { return sub.Queue == queue })
}

// answers says whether a worker is connected.
func (s *Service) answers(ctx context.Context, worker string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.nc.RequestWithContext(ctx, protocol.WorkerSubject(worker, protocol.VerbProbe), nil)
	return !errors.Is(err, nats.ErrNoResponders) // silence may be a busy worker
}

// conflict says who has the id, and until when.
func (s *Service) conflict(sub *protocol.Subscription, doc *claimDoc) error {
	settings := s.configuration.settings()
	how := fmt.Sprintf("it has it since %s, and keeps it as long as it is there and for %v after",
		doc.Since.Format(time.RFC3339), settings.ObserverGrace())
	if doc.Worker == "" {
		how = fmt.Sprintf("it left at %s, and the id is kept for it until %s",
			doc.LeftAt.Format(time.RFC3339), s.keptUntil(doc).UTC().Format(time.RFC3339Nano))
	}
	return protocol.Errorf(protocol.CodeObserverIDConflict, "the id %q of an observer of %s is that of the worker %s in namespace %s: %s; choose another id, share a group, or wait",
		sub.ObserverID, sub.Topic, doc.WorkerName, cmp.Or(doc.Namespace, protocol.DefaultNamespace), how)
}

// releaseAll gives up the ids that before had and now has not: its worker has
// removed those observers, or left them behind with all that it had. An id that
// cannot be given up is free all the same, a little later.
func (s *Service) releaseAll(ctx context.Context, before, now *workerDoc) {
	if before == nil {
		return
	}
	_ = each(ctx, before.Subscriptions, func(ctx context.Context, sub *protocol.Subscription) error {
		if !isClaimed(sub) || observes(now, sub.Queue) {
			return nil
		}
		if err := s.release(ctx, before.ID, sub.Queue, !now.Gone); err != nil {
			s.log.Debug("an observer's id could not be given up", "topic", sub.Topic, "observer", sub.ObserverID, "error", err)
		}
		return nil
	})
}

func (s *Service) release(ctx context.Context, worker, queue string, givenUp bool) error {
	for {
		doc, revision, err := s.store.claim(ctx, queue)
		if err != nil || doc.Worker != worker {
			return err
		}
		doc.Worker, doc.LeftAt, doc.GivenUp = "", time.Now().UTC(), givenUp
		if err := s.store.putClaim(ctx, queue, &doc, revision); !errors.Is(err, errMoved) {
			return err
		}
	}
}
