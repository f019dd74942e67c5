package registry

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// hello stores all that a worker wants. It is answered when the bucket has it
// and the routers do as it says about topics.
// A declaration older than the stored one, late on its way, is CONFLICT.
func (s *Service) hello(ctx context.Context, h protocol.Hello) (protocol.Registered, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	if err := s.checkSources(&h); err != nil {
		return protocol.Registered{}, err
	}
	doc := s.known.worker(h.WorkerID)
	for {
		if s.known.left(h.WorkerID, h.Revision) {
			return protocol.Registered{}, overtaken(&h)
		}
		next, refused, err := s.declare(ctx, &h, doc)
		if err != nil {
			return protocol.Registered{}, err
		}
		err = s.store.put(ctx, next)
		if err == nil && s.known.left(h.WorkerID, h.Revision) {
			_, err = s.gone(ctx, next, h.Revision)
			return protocol.Registered{}, errors.Join(overtaken(&h), err)
		}
		if err == nil {
			s.announce(next)
			s.tellFeeds(doc, next)
			err = s.confirm(ctx, doc, next)
			s.releaseAll(ctx, doc, next)
			warnings := slices.Concat(s.known.differences(&next.Worker), orderWarnings(&next.Worker), next.granted, inactiveWarnings(&next.Worker))
			r := registered(&next.Worker, s.o.keepalive(), warnings)
			r.Refused = refused
			return r, err
		}
		if !errors.Is(err, errMoved) {
			return protocol.Registered{}, err
		}
		if doc, err = s.store.worker(ctx, h.WorkerID); err != nil {
			return protocol.Registered{}, err
		}
	}
}

func overtaken(h *protocol.Hello) error {
	return protocol.Errorf(protocol.CodeConflict, "declaration %d of worker %s came after the worker's bye: declare with a higher revision to be there again", h.Revision, h.WorkerID)
}

// declare is the record a Hello makes of the one before, nil if there is none.
// Its policies are kept first: once the record is stored it counts as told.
func (s *Service) declare(ctx context.Context, h *protocol.Hello, before *workerDoc) (*workerDoc, []protocol.RefusedSubscription, error) {
	next := &workerDoc{}
	var worker *protocol.Worker
	var revision uint64
	if before != nil {
		next.Head, revision = before.Head, before.KVRevision
		if !before.Gone {
			worker = &before.Worker
		}
	}
	if worker != nil && worker.Revision > h.Revision {
		return nil, nil, protocol.Errorf(protocol.CodeConflict, "declaration %d of worker %s is older than the one that is known (%d): send the newest", h.Revision, h.WorkerID, worker.Revision)
	}
	now := time.Now().UTC()
	var err error
	configured := s.configuration.state().config()
	if next.Worker, err = declare(h, worker, now, defaultsOf(configured)); err != nil {
		return nil, nil, err
	}
	next.KVRevision = revision
	settings := configured.Settings(0)
	for i := range next.Subscriptions {
		if sub := &next.Subscriptions[i]; sub.TimeoutDefault {
			sub.TimeoutMs = settings.Observers.ActivationTimeoutMs
		}
	}
	if next.granted, err = s.granted(ctx, &next.Worker, now); err != nil {
		return nil, nil, err
	}
	refused, err := s.claimAll(ctx, before, &next.Worker)
	if err != nil {
		return nil, nil, err
	}
	err = each(ctx, next.Subscriptions, func(ctx context.Context, sub *protocol.Subscription) error {
		// A listener's queue ends with it, and needs no policy then.
		if !sub.Since.Equal(now) || sub.Kind == protocol.KindListen {
			return nil
		}
		return s.keepPolicy(ctx, sub)
	})
	return next, refused, err
}

// keepPolicy makes the policy of a queue's newest subscription the queue's.
func (s *Service) keepPolicy(ctx context.Context, sub *protocol.Subscription) error {
	for {
		doc, revision, err := s.store.policy(ctx, sub.Queue)
		if err != nil {
			return err
		}
		if doc.Policy == policyOf(sub) {
			return nil
		}
		doc.Policy, doc.By = policyOf(sub), sub.ID
		if err := s.store.putPolicy(ctx, sub.Queue, doc, revision); !errors.Is(err, errMoved) {
			return err
		}
	}
}

// bye ends a worker's registration. That it is not known is no error. Routers
// that do not confirm it in time find out by themselves.
func (s *Service) bye(ctx context.Context, b protocol.Bye) (protocol.Empty, error) {
	if err := scope.CheckToken(b.WorkerID); err != nil {
		return protocol.Empty{}, err
	}
	s.known.leave(b.WorkerID, b.Revision)
	for {
		doc, err := s.store.worker(ctx, b.WorkerID)
		if err != nil {
			return protocol.Empty{}, err
		}
		if doc == nil {
			doc = &workerDoc{Worker: protocol.Worker{ID: b.WorkerID}}
		}
		if doc.Gone || doc.KVRevision == 0 && b.Revision == 0 {
			s.alive.forget(b.WorkerID)
			return protocol.Empty{}, nil
		}
		end, err := s.gone(ctx, doc, b.Revision)
		switch {
		case errors.Is(err, errMoved):
			continue
		case err != nil:
			return protocol.Empty{}, err
		}
		s.confirmEnd(ctx, doc, end)
		return protocol.Empty{}, nil
	}
}

func (s *Service) confirmEnd(ctx context.Context, doc, end *workerDoc) {
	ctx, cancel := context.WithTimeout(ctx, byeTime)
	defer cancel()
	if err := s.confirm(ctx, doc, end); err != nil {
		s.log.Debug("a worker's end is not confirmed yet", "worker", doc.ID, "error", err)
	}
}

// gone ends a registration: the record says so first, with a revision that
// orders it among the worker's other changes, and is then removed. left is the
// worker's last declaration if it said Bye. It is errMoved if the record is not
// doc any more.
func (s *Service) gone(ctx context.Context, doc *workerDoc, left uint64) (*workerDoc, error) {
	end := &workerDoc{Head: doc.Head, Worker: doc.Worker, Left: left}
	end.Gone, end.Subscriptions, end.Functions = true, nil, nil
	if err := s.store.put(ctx, end); err != nil {
		return nil, err
	}
	s.announce(end)
	s.tellFeeds(doc, end)
	s.clearAway(ctx, end)
	s.releaseAll(ctx, doc, end)
	return end, nil
}

// clearAway removes a record that says Gone. If that fails, the next reading
// of all records does it.
func (s *Service) clearAway(ctx context.Context, end *workerDoc) {
	if err := s.store.remove(ctx, end); err != nil {
		s.log.Debug("an ended worker's record could not be removed yet", "worker", end.ID, "error", err)
	}
}

// hear takes a record for a sign of life, or of its end.
func (s *Service) hear(doc *workerDoc) {
	if doc.Gone {
		s.alive.forget(doc.ID)
		s.confirmed.forget(doc.ID)
		return
	}
	s.alive.hear(doc.ID)
}

// announce applies a record that is stored, and tells everybody.
func (s *Service) announce(doc *workerDoc) {
	s.known.apply(doc)
	s.hear(doc)
	body, err := json.Marshal(s.changed(doc))
	if err == nil {
		err = s.nc.Publish(protocol.SubjectWorkerChanged, body)
	}
	if err != nil { // they read the records again by themselves
		s.log.Warn("a worker's change could not be announced", "worker", doc.ID, "error", err)
	}
}

// told takes the end of a worker that another registry announced: its record may
// be removed before the watch has come to it.
func (s *Service) told(m *nats.Msg) {
	var changed protocol.WorkerChanged
	if err := json.Unmarshal(m.Data, &changed); err != nil || !changed.Worker.Gone {
		return
	}
	if doc := (&workerDoc{Worker: changed.Worker}); s.known.apply(doc) {
		s.hear(doc)
	}
}

// changed is what routers are told of a record. The settings go with it: what
// happens to a worker's queues depends on those that hold when it happens.
func (s *Service) changed(doc *workerDoc) protocol.WorkerChanged {
	settings := s.configuration.settings()
	return protocol.WorkerChanged{Worker: doc.Worker, Settings: &settings}
}
