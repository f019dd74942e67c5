package registry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// claimDoc says who observes a topic under an id. It is written before the
// worker's record, so that of two workers only one has the id, and stays when
// the observer is gone.
type claimDoc struct {
	document.Head
	Topic      string    `json:"topic"`
	ObserverID string    `json:"observer_id"`
	Worker     string    `json:"worker"`           // empty: nobody observes under it now
	WorkerName string    `json:"worker_name"`      // of the last one
	Since      time.Time `json:"since"`            // of the claim
	LeftAt     time.Time `json:"left_at,omitzero"` // when the last one left
}

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

// claimAll claims the ids of the worker's observers. Those that others have
// are taken out of its record, and named.
func (s *Service) claimAll(ctx context.Context, w *protocol.Worker) (refused []protocol.RefusedSubscription, err error) {
	w.Subscriptions = slices.DeleteFunc(w.Subscriptions, func(sub protocol.Subscription) bool {
		if err != nil || !isClaimed(&sub) {
			return false
		}
		conflict := s.claim(ctx, w, &sub)
		if protocol.CodeOf(conflict) != protocol.CodeObserverIDConflict {
			err = conflict
			return false
		}
		refused = append(refused, protocol.RefusedSubscription{Ref: sub.Ref, Error: *protocol.AsError(conflict)})
		return true
	})
	return refused, err
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
			if !pause(ctx, claimAgain) {
				return conflict(sub, &doc)
			}
			continue
		}
		doc.Topic, doc.ObserverID, doc.Worker, doc.WorkerName = sub.Topic, sub.ObserverID, w.ID, w.Name
		doc.Since, doc.LeftAt = time.Now().UTC(), time.Time{}
		if err := s.store.putClaim(ctx, sub.Queue, &doc, revision); !errors.Is(err, errMoved) {
			return err
		}
	}
}

// vacant says whether an id may be taken over. The same program that comes
// back after a crash need not wait until the mesh has noticed.
func (s *Service) vacant(ctx context.Context, w *protocol.Worker, sub *protocol.Subscription, doc *claimDoc) (bool, error) {
	if doc.Worker == "" {
		return true, nil
	}
	holder, err := s.store.worker(ctx, doc.Worker)
	switch {
	case err != nil:
		return false, err
	case holder == nil || !observes(holder, sub.Queue):
		return time.Since(doc.Since) > claimTime, nil
	case holder.Name != w.Name || s.answers(ctx, holder.ID):
		return false, conflict(sub, doc)
	}
	if _, err := s.gone(ctx, holder, 0); err != nil && !errors.Is(err, errMoved) {
		return false, err
	}
	s.log.Info("a worker that does not answer is replaced by one of the same name", "worker", holder.ID, "name", holder.Name, "by", w.ID)
	return false, nil // look again
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

func conflict(sub *protocol.Subscription, doc *claimDoc) error {
	return protocol.Errorf(protocol.CodeObserverIDConflict,
		"%s observes %s under the id %q since %s: choose another id, share a group, or wait until it is gone",
		doc.WorkerName, sub.Topic, sub.ObserverID, doc.Since.Format(time.RFC3339))
}

// releaseAll gives up the ids that before had and now has not. An id that
// cannot be given up is free all the same, a little later.
func (s *Service) releaseAll(ctx context.Context, before, now *workerDoc) {
	if before == nil {
		return
	}
	for i := range before.Subscriptions {
		sub := &before.Subscriptions[i]
		if !isClaimed(sub) || observes(now, sub.Queue) {
			continue
		}
		if err := s.release(ctx, before.ID, sub.Queue); err != nil {
			s.log.Debug("an observer's id could not be given up", "topic", sub.Topic, "observer", sub.ObserverID, "error", err)
		}
	}
}

func (s *Service) release(ctx context.Context, worker, queue string) error {
	for {
		doc, revision, err := s.store.claim(ctx, queue)
		if err != nil || doc.Worker != worker {
			return err
		}
		doc.Worker, doc.LeftAt = "", time.Now().UTC()
		if err := s.store.putClaim(ctx, queue, &doc, revision); !errors.Is(err, errMoved) {
			return err
		}
	}
}
