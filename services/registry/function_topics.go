package registry

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// defineQueue is define, without what only the mesh's own programs ask for.
func (s *Service) defineQueue(ctx context.Context, q protocol.DefineRequest) (protocol.DefineReply, error) {
	reply, err := s.define(ctx, q)
	reply.Revision = 0
	return reply, err
}

// listTopics lists topics and named queues, also those that are defined and hold
// nothing.
func (s *Service) listTopics(ctx context.Context, _ protocol.Empty) ([]protocol.TopicSummary, error) {
	now, err := s.configNow(ctx)
	if err != nil {
		return nil, err
	}
	topics, err := operate.Topics(ctx, s.nc, now.kindOf)
	if err != nil {
		return nil, err
	}
	for name := range now.config().QueueConfigs {
		if !slices.ContainsFunc(topics, func(t protocol.TopicSummary) bool { return t.Name == name }) {
			topics = append(topics, protocol.TopicSummary{Name: name, BrokerType: now.kindOf(scope.JobsQueue(name))})
		}
	}
	slices.SortFunc(topics, func(a, b protocol.TopicSummary) int { return cmp.Compare(a.Name, b.Name) })
	return topics, nil
}

func (s *Service) topicStats(ctx context.Context, q protocol.TargetRequest) (protocol.TopicStats, error) {
	_, sources, err := sourcesOf(&q)
	if err != nil {
		return protocol.TopicStats{}, err
	}
	stats, err := operate.TopicStats(ctx, s.nc, sources)
	if err != nil {
		return stats, err
	}
	now, err := s.configNow(ctx)
	if err != nil {
		return stats, err
	}
	if name, ok := scope.NamedQueue(sources[0].Queue); ok {
		stats.Config = definitionOf(now.config(), name)
	}
	if stats.Dead == 0 {
		stats.NoDeadLetters = s.noDeadLetters(ctx, now, sources)
	}
	return stats, nil
}

// noDeadLetters is what a broker says of dead letters that cannot have any; "": they can
// be wherever these are.
func (s *Service) noDeadLetters(ctx context.Context, now *configState, sources []operate.Source) string {
	for _, source := range sources {
		queue := source.Queue
		if queue == "" {
			queue = source.Topic + "::@any"
		}
		if !config.IsTopicsOnly(now.kindOf(queue)) {
			continue
		}
		_, err := mesh.Request[protocol.DeadPage](ctx, s.nc, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: source.Queue, Topic: source.Topic, Limit: 1})
		if protocol.CodeOf(err) == protocol.CodeUnsupported {
			return protocol.AsError(err).Message
		}
	}
	return ""
}

// configNow is the configuration as it is stored.
func (s *Service) configNow(ctx context.Context) (*configState, error) {
	doc, err := s.store.config(ctx)
	if err != nil {
		return nil, err
	}
	return complete(doc), nil
}

func (s *Service) deadTopics(ctx context.Context, q protocol.DeadTopicsRequest) ([]protocol.DeadTopic, error) {
	now, err := s.configNow(ctx)
	if err != nil {
		return nil, err
	}
	dead, err := operate.DeadTopics(ctx, s.nc, now.kindOf)
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
