package registry

import (
	"context"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

const (
	// maxFeed events wait for a router; what comes beyond is left out, since an
	// event only says that there is something new to read.
	maxFeed = 1024
	// feedWithin is how long a router is looked for, feedAgain the pause between.
	feedWithin = 30 * time.Second
	feedAgain  = 250 * time.Millisecond
)

// feedTopics are the topics of the functions that are observed for changes.
var feedTopics = map[string]string{
	protocol.FeedFunctions: protocol.TopicFunctionsChanged,
	protocol.FeedWorkers:   protocol.TopicWorkersChanged,
}

// event is what a feed's observers are told.
type event struct {
	topic string
	body  any
}

// tellFeeds queues what has changed from one record of a worker to the next, nil
// before its first.
func (s *Service) tellFeeds(before, now *workerDoc) {
	if before == nil || before.Gone {
		before = &workerDoc{Worker: protocol.Worker{Gone: true}}
	}
	name := protocol.WorkerName{Name: now.Name, Namespace: namespaceOf(&now.Worker)}
	if before.Gone != now.Gone {
		change := protocol.WorkerJoined
		if now.Gone {
			change = protocol.WorkerLeft
		}
		s.queueEvent(event{protocol.TopicWorkersChanged, protocol.WorkersEvent{Change: change, Worker: name}})
	}
	e := protocol.FunctionsEvent{Worker: name, Added: missing(now.Functions, before.Functions), Removed: missing(before.Functions, now.Functions)}
	if len(e.Added)+len(e.Removed) > 0 {
		s.queueEvent(event{protocol.TopicFunctionsChanged, e})
	}
}

// missing are those of all that others does not have.
func missing(all, others []protocol.ServedFunction) []protocol.FunctionSpec {
	has := make(map[protocol.FunctionSpec]bool, len(others))
	for _, f := range others {
		has[f.FunctionSpec] = true
	}
	var found []protocol.FunctionSpec
	for _, f := range all {
		if !has[f.FunctionSpec] {
			found = append(found, f.FunctionSpec)
		}
	}
	return found
}

func (s *Service) queueEvent(e event) {
	select {
	case s.events <- e:
	default:
		s.log.Warn("an event for observers of changes was left out: too many wait for a router", "topic", e.topic)
	}
}

// feed publishes events, in their order.
func (s *Service) feed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.events:
			if err := s.publishEvent(ctx, e); err != nil && ctx.Err() == nil {
				s.log.Warn("an event for observers of changes could not be published", "topic", e.topic, "error", err)
			}
		}
	}
}

// publishEvent publishes one; with nobody observing nothing is stored. It is in
// no trace, since nobody asked for it.
func (s *Service) publishEvent(ctx context.Context, e event) error {
	ctx, cancel := context.WithTimeout(tracing.Decline(ctx), feedWithin)
	defer cancel()
	for {
		_, err := mesh.Request[protocol.PublishAck](ctx, s.nc, protocol.PublishTopicSubject(e.topic), e.body)
		if protocol.CodeOf(err) != protocol.CodeUnavailable || !mesh.Pause(ctx, feedAgain) {
			return err
		}
	}
}
