package registry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// learnLanes finds out how many lanes there are.
func (s *Service) learnLanes(ctx context.Context) error {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return err
	}
	return s.lanes.Learn(ctx, js)
}

// confirm returns when the routers that own the lanes of the worker's topics,
// those it had and those it has, do as its record says: what is published to
// them from then on is stored for whoever it has subscribed, and nothing more
// is delivered to whom it has unsubscribed.
func (s *Service) confirm(ctx context.Context, before, now *workerDoc) error {
	queues := topicQueues(before, now)
	if len(queues) == 0 {
		return nil
	}
	for !s.lanes.Known() {
		if !pause(ctx, confirmAgain) {
			return protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: topics are served as soon as one has")
		}
	}
	lanes := map[string]bool{}
	for _, queue := range queues {
		lanes[s.lanes.Of(queue)] = true
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
		_, err := mesh.Request[protocol.Empty](try, s.nc, protocol.SubjectLane+lane+".follow", protocol.WorkerChanged{Worker: doc.Worker})
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

// pause is false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
