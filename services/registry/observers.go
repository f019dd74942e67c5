package registry

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// observers lists observers and groups: what the services have of their queues,
// who takes their messages, and whose ids they are.
func (s *Service) observers(ctx context.Context, q protocol.ObserversRequest) (protocol.ObserversPage, error) {
	page := protocol.ObserversPage{Observers: []protocol.ObserverInfo{}}
	limit, err := pageSize(q.Limit)
	if err != nil {
		return page, err
	}
	if q.Queue != "" {
		if _, err := observersQueue(q.Queue); err != nil {
			return page, err
		}
	}
	if q.Topic != "" {
		if q.Topic, err = scope.Topic(q.Topic); err != nil {
			return page, err
		}
	}
	queues, err := operate.Queues(ctx, s.nc, protocol.QueuesRequest{
		Queue: q.Queue, Topic: q.Topic, Subscribers: true, After: q.After, Limit: min(limit, observersPage),
	})
	if err := cmp.Or(err, queues.Missing.Err()); err != nil {
		return page, err
	}
	if queues.More && len(queues.Queues) > 0 {
		page.Next = queues.Queues[len(queues.Queues)-1].Queue
	}
	weight := 0
	for i := range queues.Queues {
		info, ok := s.observer(&queues.Queues[i])
		if !ok || q.Orphans && len(info.Members) > 0 {
			continue
		}
		if weight += 1 + len(info.Members); weight > pageWeight && len(page.Observers) > 0 {
			page.Next = page.Observers[len(page.Observers)-1].Queue
			break
		}
		page.Observers = append(page.Observers, info)
	}
	if err := s.membersEffective(ctx, page.Observers); err != nil {
		return page, err
	}
	return page, s.ownersOf(ctx, page.Observers)
}

// membersEffective adds what holds of the members where their queues are.
func (s *Service) membersEffective(ctx context.Context, observers []protocol.ObserverInfo) error {
	var members []*protocol.SubscriptionInfo
	for i := range observers {
		for k := range observers[i].Members {
			members = append(members, &observers[i].Members[k])
		}
	}
	return s.withEffective(ctx, members)
}

// observersPage is how many observers a page has at most, so that it stays a
// message.
const observersPage = 256

// observersQueue is what a queue's name says; INVALID_ARGS if it is not that of
// an observer or a group.
func observersQueue(queue string) (scope.Name, error) {
	n, ok := scope.SubscriberOf(queue)
	if !ok || n.Kind == scope.KindListener {
		return n, protocol.Errorf(protocol.CodeInvalidArgs, "%.300q is no queue of an observer or a group: it is TOPIC::observer:ID or TOPIC::@GROUP", queue)
	}
	return n, nil
}

// observer describes a queue that is an observer's or a group's. One of which
// only counters or dead letters are left is none any more.
func (s *Service) observer(queue *protocol.QueueInfo) (info protocol.ObserverInfo, ok bool) {
	n, err := observersQueue(queue.Queue)
	if err != nil {
		return info, false
	}
	info = protocol.ObserverInfo{QueueInfo: *queue, Members: s.known.members(queue.Queue)}
	if n.Kind == scope.KindGroup {
		info.Group = n.Member
	} else {
		info.ObserverID = n.Member
	}
	info.State = stateOf(&info)
	held := queue.Ready + queue.InFlight + queue.Waiting + queue.Moving
	there := len(info.Members) > 0 || queue.Consumers > 0
	return info, there || queue.Receiving || !queue.DetachedAt.IsZero() || held > 0 || queue.Unknown != ""
}

func stateOf(info *protocol.ObserverInfo) protocol.ObserverState {
	switch {
	case slices.ContainsFunc(info.Members, func(m protocol.SubscriptionInfo) bool { return !m.Draining }):
		return protocol.ObserverActive
	case len(info.Members) > 0:
		return protocol.ObserverNotActive
	case info.Receiving && (info.DetachedAt.IsZero() || !info.ReceivesUntil.IsZero()):
		return protocol.ObserverRetained
	default:
		return protocol.ObserverOrphan
	}
}

// members are a queue's subscriptions, in order of id.
func (d *directory) members(queue string) []protocol.SubscriptionInfo {
	d.mu.RLock()
	defer d.mu.RUnlock()
	members := make([]protocol.SubscriptionInfo, 0, len(d.byQueue[queue]))
	for _, sub := range d.byQueue[queue] {
		info := protocol.SubscriptionInfo{Subscription: *sub}
		if w := d.workers[sub.Worker]; w != nil {
			info.WorkerName, info.Namespace = w.Name, w.Namespace
		}
		members = append(members, info)
	}
	slices.SortFunc(members, func(a, b protocol.SubscriptionInfo) int { return strings.Compare(a.ID, b.ID) })
	return members
}

// ownersOf says of each observer whose id it is.
func (s *Service) ownersOf(ctx context.Context, observers []protocol.ObserverInfo) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(together)
	for i := range observers {
		info := &observers[i]
		if info.Group != "" {
			continue
		}
		group.Go(func() error {
			doc, revision, err := s.store.claim(ctx, info.Queue)
			if err == nil && revision > 0 {
				info.Owner = s.ownerOf(&doc)
			}
			return err
		})
	}
	return group.Wait()
}

func (s *Service) ownerOf(doc *claimDoc) *protocol.ObserverOwner {
	owner := &protocol.ObserverOwner{
		WorkerName: doc.WorkerName, Namespace: cmp.Or(doc.Namespace, protocol.DefaultNamespace), Since: doc.Since,
	}
	if doc.Worker == "" {
		owner.LeftAt = doc.LeftAt
		if until := s.keptUntil(doc); until.After(time.Now()) {
			owner.KeptUntil = until.UTC()
		}
	}
	return owner
}
