package operate

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Topics are the topics that somebody has subscribed to and the named queues of
// which there is something, in order of name.
func Topics(ctx context.Context, nc *nats.Conn) ([]protocol.TopicSummary, error) {
	subscribers, err := allPages(ctx, nc, protocol.QueuesRequest{Subscribers: true}, nil)
	if err != nil {
		return nil, err
	}
	named, err := allPages(ctx, nc, protocol.QueuesRequest{After: scope.JobsPrefix}, func(q *protocol.QueueInfo) bool {
		return strings.HasPrefix(q.Queue, scope.JobsPrefix)
	})
	if err != nil {
		return nil, err
	}
	byName := map[string]int{}
	for i := range subscribers {
		q := &subscribers[i]
		byName[q.Topic] += 0
		if q.Receiving || q.Consumers > 0 {
			byName[q.Topic]++
		}
	}
	for i := range named {
		byName[bareName(&named[i])] += named[i].Consumers
	}
	topics := []protocol.TopicSummary{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		topics = append(topics, protocol.TopicSummary{Name: name, BrokerType: protocol.BrokerBuiltin, Subscribers: byName[name]})
	}
	return topics, nil
}

// DeadTopics are the topics, named queues and queues of executions that have
// dead letters, in order of name.
func DeadTopics(ctx context.Context, nc *nats.Conn) ([]protocol.DeadTopic, error) {
	byName := map[string]int64{}
	for q := (protocol.QueuesRequest{Limit: MaxPage}); ; {
		parts, err := askAll(ctx, []source[protocol.QueueInfo]{gathered(nc, "dlq", protocol.SubjectDeadQueues, q, queuesOf)})
		if err != nil {
			return nil, err
		}
		queues, more := merged(parts, func(q *protocol.QueueInfo) string { return q.Queue }, addQueue, MaxPage)
		for i := range queues {
			byName[bareName(&queues[i])] += queues[i].Dead
		}
		if !more || len(queues) == 0 {
			break
		}
		q.After = queues[len(queues)-1].Queue
	}
	dead := []protocol.DeadTopic{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if byName[name] > 0 {
			dead = append(dead, protocol.DeadTopic{Topic: name, BrokerType: protocol.BrokerBuiltin, Messages: byName[name]})
		}
	}
	return dead, nil
}

// TopicStats adds up the queues of sources; what is not there is 0.
func TopicStats(ctx context.Context, nc *nats.Conn, sources []Source) (protocol.TopicStats, error) {
	var stats protocol.TopicStats
	for _, source := range sources {
		queues, err := allPages(ctx, nc, protocol.QueuesRequest{Queue: source.Queue, Topic: source.Topic}, nil)
		if err != nil {
			return stats, err
		}
		for i := range queues {
			q := &queues[i]
			stats.Depth += q.Ready + q.InFlight + q.Waiting + q.Moving
			stats.Consumers += q.Consumers
			stats.Dead += q.Dead
			stats.Delivered += q.Counters[protocol.CountDelivered]
			stats.Failed += q.Counters[protocol.CountFailed]
		}
	}
	return stats, nil
}
