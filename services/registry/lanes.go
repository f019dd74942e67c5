package registry

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	// helloTime bounds how long a declaration waits for the routers, byeTime
	// how long an end does: they find out by themselves.
	helloTime    = 8 * time.Second
	byeTime      = 2 * time.Second
	confirmTime  = time.Second
	confirmAgain = 50 * time.Millisecond
)

// confirm returns when the routers that own the lanes of the worker's topics,
// those it had and those it has, do as its record says: what is published to
// them from then on is stored for whoever it has subscribed, and nothing more
// is delivered to whom it has unsubscribed. Lanes that have confirmed the record
// before, and in which nothing has changed since, are not asked again.
func (s *Service) confirm(ctx context.Context, before, now *workerDoc) error {
	queues := topicQueues(before, now)
	if before != nil && s.confirmed.has(before) {
		queues = changedQueues(before, now)
	}
	if err := s.confirmQueues(ctx, now, queues); err != nil {
		return err
	}
	s.confirmed.add(now)
	return nil
}

// confirmed are the records that routers have confirmed to this registry.
type confirmed struct {
	mu        sync.Mutex
	revisions map[string]uint64 // by worker
}

func (c *confirmed) has(doc *workerDoc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revisions[doc.ID] == doc.KVRevision
}

func (c *confirmed) add(doc *workerDoc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if doc.Gone {
		delete(c.revisions, doc.ID)
		return
	}
	c.revisions[doc.ID] = doc.KVRevision
}

// forget is for a worker that is gone without having been confirmed so.
func (c *confirmed) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.revisions, id)
}

// changedQueues are the topics' queues of subscriptions that only one of two
// records has, or that differ.
func changedQueues(before, now *workerDoc) []string {
	earlier := make(map[string]*protocol.Subscription, len(before.Subscriptions))
	for i := range before.Subscriptions {
		earlier[before.Subscriptions[i].ID] = &before.Subscriptions[i]
	}
	var queues []string
	for i := range now.Subscriptions {
		sub := &now.Subscriptions[i]
		old := earlier[sub.ID]
		delete(earlier, sub.ID)
		if old != nil && reflect.DeepEqual(old, sub) {
			continue
		}
		queues = appendTopic(queues, sub)
		if old != nil {
			queues = appendTopic(queues, old)
		}
	}
	for _, old := range earlier {
		queues = appendTopic(queues, old)
	}
	return queues
}

// appendTopic appends the queue of a subscription to a topic.
func appendTopic(queues []string, sub *protocol.Subscription) []string {
	if sub.Topic == "" {
		return queues
	}
	return append(queues, sub.Queue)
}

// confirmQueues asks the lanes of these queues.
func (s *Service) confirmQueues(ctx context.Context, now *workerDoc, queues []string) error {
	if len(queues) == 0 {
		return nil
	}
	total, err := s.lanes(ctx)
	if err != nil {
		return err
	}
	lanes := map[string]bool{}
	for _, queue := range queues {
		lanes[ledger.Name("router", ledger.Of(queue, total))] = true
	}
	var asking sync.WaitGroup
	errs := make([]error, len(lanes))
	for i, lane := range slices.Collect(maps.Keys(lanes)) {
		asking.Go(func() { errs[i] = s.confirmLane(ctx, lane, now) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

// lanes is how many lanes there are, once a router has ever started.
func (s *Service) lanes(ctx context.Context) (int, error) {
	total, err := s.ledgers(ctx, "router")
	for total == 0 && err == nil {
		if !mesh.Pause(ctx, confirmAgain) {
			return 0, protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: topics and named queues are served as soon as one has")
		}
		total, err = s.ledgers(ctx, "router")
	}
	return total, err
}

func topicQueues(docs ...*workerDoc) []string {
	var queues []string
	for _, doc := range docs {
		if doc == nil {
			continue
		}
		for i := range doc.Subscriptions {
			queues = appendTopic(queues, &doc.Subscriptions[i])
		}
	}
	return queues
}

// confirmLane asks the lane's owner until it confirms.
func (s *Service) confirmLane(ctx context.Context, lane string, doc *workerDoc) error {
	return s.untilConfirmed(ctx, lane, func(ctx context.Context) error {
		_, err := mesh.Request[protocol.Empty](ctx, s.nc, protocol.SubjectLane+lane+".follow", s.changed(doc))
		return err
	})
}

// untilConfirmed asks the lane's owner until it answers: a lane that moves has
// none for a moment.
func (s *Service) untilConfirmed(ctx context.Context, lane string, ask func(ctx context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, confirmTime)
		err := ask(try)
		cancel()
		switch code := protocol.CodeOf(err); {
		case err == nil:
			return nil
		case code != protocol.CodeUnavailable && code != protocol.CodeTimeout:
			return err
		case !mesh.Pause(ctx, confirmAgain):
			return protocol.Errorf(protocol.CodeUnavailable, "no router has confirmed what lane %s is to do, and one will: try again", lane)
		}
	}
}
