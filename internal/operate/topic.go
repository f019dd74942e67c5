package operate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Topics are the topics that somebody has subscribed to and the named queues of
// which there is something, in order of name. kindOf is the kind of the broker that a
// queue is on.
func Topics(ctx context.Context, nc *nats.Conn, kindOf func(queue string) string) ([]protocol.TopicSummary, error) {
	subscribers, err := whole(ctx, nc, protocol.QueuesRequest{Subscribers: true}, nil)
	if err != nil {
		return nil, err
	}
	named, err := whole(ctx, nc, protocol.QueuesRequest{After: scope.JobsPrefix}, func(q *protocol.QueueInfo) bool {
		return strings.HasPrefix(q.Queue, scope.JobsPrefix)
	})
	if err != nil {
		return nil, err
	}
	byName, kinds := map[string]int{}, map[string]string{}
	for i := range subscribers {
		q := &subscribers[i]
		byName[q.Topic] += 0
		kinds[q.Topic] = kindOf(q.Queue)
		if q.Receiving || q.Consumers > 0 {
			byName[q.Topic]++
		}
	}
	for i := range named {
		name := bareName(&named[i])
		byName[name] += named[i].Consumers
		kinds[name] = kindOf(named[i].Queue)
	}
	topics := []protocol.TopicSummary{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		topics = append(topics, protocol.TopicSummary{Name: name, BrokerType: kinds[name], Subscribers: byName[name]})
	}
	return topics, nil
}

// DeadTopics are the topics, named queues and queues of executions that have
// dead letters, in order of name. kindOf is as for Topics.
func DeadTopics(ctx context.Context, nc *nats.Conn, kindOf func(queue string) string) ([]protocol.DeadTopic, error) {
	queues, err := whole(ctx, nc, protocol.QueuesRequest{}, nil)
	if err != nil {
		return nil, err
	}
	byName := map[string]*protocol.DeadTopic{}
	for i := range queues {
		q := &queues[i]
		if q.Dead == 0 && q.Unknown == "" {
			continue
		}
		name := bareName(q)
		if byName[name] == nil {
			byName[name] = &protocol.DeadTopic{Topic: name}
		}
		topic := byName[name]
		topic.BrokerType, topic.Unknown = kindOf(q.Queue), cmp.Or(topic.Unknown, q.Unknown)
		topic.Messages += q.Dead
	}
	dead := []protocol.DeadTopic{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		dead = append(dead, *byName[name])
	}
	return dead, nil
}

// TopicStats adds up the queues of sources; what is not there is 0.
func TopicStats(ctx context.Context, nc *nats.Conn, sources []Source) (protocol.TopicStats, error) {
	var stats protocol.TopicStats
	for _, source := range sources {
		queues, err := whole(ctx, nc, protocol.QueuesRequest{Queue: source.Queue, Topic: source.Topic}, nil)
		if err != nil {
			return stats, err
		}
		for i := range queues {
			q := &queues[i]
			stats.Depth += q.Ready + q.InFlight + q.Waiting + q.Moving
			stats.Consumers += q.Consumers
			stats.Dead += q.Dead
			stats.Unknown = cmp.Or(stats.Unknown, q.Unknown)
			stats.Delivered += q.Counters[protocol.CountDelivered]
			stats.Failed += q.Counters[protocol.CountFailed]
		}
	}
	return stats, nil
}
