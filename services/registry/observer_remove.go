package registry

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	removeTime  = 10 * time.Second
	removeTries = 40 // with tellAgain in between
)

// removeObserver ends the queue of an observer or a group on an operator's word:
// what the services hold of it is discarded, and its id is nobody's.
func (s *Service) removeObserver(ctx context.Context, q protocol.ObserverRemoveRequest) (protocol.ObserverRemoved, error) {
	removed := protocol.ObserverRemoved{Queue: q.Queue}
	if _, err := observersQueue(q.Queue); err != nil {
		return removed, err
	}
	if members := s.known.members(q.Queue); len(members) > 0 {
		return removed, protocol.Errorf(protocol.CodeConflict, "%s is observed by %s: stop it first, or wait until it is gone", q.Queue, members[0].WorkerName)
	}
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	known := false
	for try := 0; ; try++ {
		left, err := s.empty(ctx, &q, &removed, &known)
		if err != nil {
			return removed, err
		}
		if left == 0 {
			break
		}
		if try == removeTries || !mesh.Pause(ctx, tellAgain) {
			return removed, protocol.Errorf(protocol.CodeConflict, "%s has %d messages on their way elsewhere: remove it again", q.Queue, left)
		}
	}
	claimed, err := s.store.dropObserver(ctx, q.Queue)
	if err == nil && !known && !claimed && removed.Discarded+removed.DeadLetters == 0 {
		err = protocol.Errorf(protocol.CodeNotFound, "there is no observer or group with the queue %s", q.Queue)
	}
	return removed, err
}

// empty discards what each service holds of a queue, in the order in which
// messages come back to it, and says how many cannot be discarded yet.
func (s *Service) empty(ctx context.Context, q *protocol.ObserverRemoveRequest, removed *protocol.ObserverRemoved, known *bool) (left int64, err error) {
	cancelled, err := mesh.Request[protocol.WaitingActReply](ctx, s.nc, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: q.Queue, By: q.By})
	if err != nil {
		return 0, err
	}
	removed.Discarded += cancelled.Count
	lane, err := s.laneOf(ctx, q.Queue)
	if err != nil {
		return 0, err
	}
	forgotten, err := mesh.Request[protocol.ForgetReply](ctx, s.nc, protocol.SubjectLane+lane+"."+protocol.VerbForget, protocol.ForgetRequest{Queue: q.Queue})
	if err != nil {
		return 0, err
	}
	removed.Discarded += forgotten.Discarded
	*known = *known || forgotten.Known
	letters, err := mesh.Request[protocol.DeadActReply](ctx, s.nc, protocol.SubjectDeadDiscard, protocol.DeadActRequest{Queue: q.Queue, By: q.By})
	removed.DeadLetters += letters.Count + forgotten.DeadLetters
	return forgotten.Left + cancelled.Count, err
}

// laneOf is the lane a queue belongs to. UNAVAILABLE: no router was ever
// started.
func (s *Service) laneOf(ctx context.Context, queue string) (string, error) {
	total, err := s.ledgers(ctx, "router")
	if err != nil {
		return "", err
	}
	if total == 0 {
		return "", protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: topics are served as soon as one has")
	}
	return ledger.Name("router", ledger.Of(queue, total)), nil
}

// dropObserver removes what is kept of an observer or a group: whose its id was,
// unless somebody has it again, and its policy.
func (s *store) dropObserver(ctx context.Context, queue string) (claimed bool, err error) {
	doc, revision, err := s.claim(ctx, queue)
	if err != nil {
		return false, err
	}
	if doc.Worker != "" {
		return true, nil
	}
	for _, key := range []string{claimKey, topicPolicyKey} {
		purge := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject("$KV." + Bucket + "." + key + encoded(queue))}
		if key == claimKey {
			purge = append(purge, jetstream.WithPurgeSequence(revision+1))
		}
		if err := s.stream.Purge(ctx, purge...); err != nil {
			return false, unavailable(err)
		}
	}
	return revision > 0, nil
}
