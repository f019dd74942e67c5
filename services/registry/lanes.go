package registry

import (
	"context"
	"errors"
	"maps"
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
// is delivered to whom it has unsubscribed.
func (s *Service) confirm(ctx context.Context, before, now *workerDoc) error {
	queues := topicQueues(before, now)
	if len(queues) == 0 {
		return nil
	}
	total, err := s.ledgers(ctx, "router")
	for total == 0 && err == nil {
		if !pause(ctx, confirmAgain) {
			return protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: topics are served as soon as one has")
		}
		total, err = s.ledgers(ctx, "router")
	}
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

func topicQueues(docs ...*workerDoc) []string {
	var queues []string
	for _, doc := range docs {
		if doc == nil {
			continue
		}
		for i := range doc.Subscriptions {
			if sub := &doc.Subscriptions[i]; sub.Topic != "" {
				queues = append(queues, sub.Queue)
			}
		}
	}
	return queues
}

// confirmLane asks the lane's owner until it confirms: a lane that moves has
// none for a moment.
func (s *Service) confirmLane(ctx context.Context, lane string, doc *workerDoc) error {
	for {
		try, cancel := context.WithTimeout(ctx, confirmTime)
		_, err := mesh.Request[protocol.Empty](try, s.nc, protocol.SubjectLane+lane+".follow", s.changed(doc))
		cancel()
		switch code := protocol.CodeOf(err); {
		case err == nil:
			return nil
		case code != protocol.CodeUnavailable && code != protocol.CodeTimeout:
			return err
		case !pause(ctx, confirmAgain):
			return protocol.Errorf(protocol.CodeUnavailable, "no router has confirmed the subscriptions of lane %s yet, and one will: try again", lane)
		}
	}
}
