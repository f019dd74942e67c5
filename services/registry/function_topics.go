package registry

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func (s *Service) listTopics(ctx context.Context, _ protocol.Empty) ([]protocol.TopicSummary, error) {
	return operate.Topics(ctx, s.nc)
}

func (s *Service) topicStats(ctx context.Context, q protocol.TargetRequest) (protocol.TopicStats, error) {
	_, sources, err := sourcesOf(&q)
	if err != nil {
		return protocol.TopicStats{}, err
	}
	return operate.TopicStats(ctx, s.nc, sources)
}

func (s *Service) deadTopics(ctx context.Context, q protocol.DeadTopicsRequest) ([]protocol.DeadTopic, error) {
	dead, err := operate.DeadTopics(ctx, s.nc)
	if err != nil || !q.IncludeEmpty {
		return dead, err
	}
	topics, err := s.listTopics(ctx, protocol.Empty{})
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if !slices.ContainsFunc(dead, func(d protocol.DeadTopic) bool { return d.Topic == t.Name }) {
			dead = append(dead, protocol.DeadTopic{Topic: t.Name, BrokerType: t.BrokerType})
		}
	}
	slices.SortFunc(dead, func(a, b protocol.DeadTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return dead, nil
}
