package registry

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// provide serves those of the mesh's own functions that are not the routers'.
func (s *Service) provide() error {
	return errors.Join(
		project(s, protocol.FunctionDefine, s.defineQueue),
		project(s, protocol.FunctionRedrive, s.redriveTarget),
		project(s, protocol.FunctionRedriveMessage, s.redriveMessage),
		project(s, protocol.FunctionDiscardMessage, s.discardMessage),
		provider(s, protocol.FunctionListTopics, s.listTopics),
		provider(s, protocol.FunctionTopicStats, s.topicStats),
		provider(s, protocol.FunctionDLQTopics, s.deadTopics),
		provider(s, protocol.FunctionDLQMessages, s.deadMessages),
		provider(s, protocol.FunctionInfoOf, s.functionInfo),
		provider(s, protocol.FunctionWorkersList, s.workersList),
		s.refusePrivate(),
	)
}

// project serves a function in every namespace.
func project[Q, R any](s *Service, id string, h func(context.Context, Q) (R, error)) error {
	return serveFunction(s, "*", id, h)
}

// provider serves a function in the default namespace.
func provider[Q, R any](s *Service, id string, h func(context.Context, Q) (R, error)) error {
	return serveFunction(s, protocol.DefaultNamespace, id, h)
}

func serveFunction[Q, R any](s *Service, namespace, id string, h func(context.Context, Q) (R, error)) error {
	return mesh.Endpoint(s.mesh, endpointName(id), protocol.FunctionSubject(namespace, id), func(ctx context.Context, input json.RawMessage) (r R, err error) {
		var q Q
		if err := mesh.ReadInput(id, input, &q); err != nil {
			return r, err
		}
		return h(ctx, q)
	})
}

// endpointName is a function's id as NATS micro takes names.
func endpointName(id string) string { return strings.ReplaceAll(id, "::", "-") }

// private are the functions that nobody calls, and what to do instead.
var private = map[string]string{
	protocol.FunctionOnMessage:      "publish to the topic, and its observers receive it",
	protocol.FunctionOnEngineChange: "observe " + protocol.FeedFunctions + " or " + protocol.FeedWorkers + " to learn of changes",
	protocol.FeedFunctions:          "observe it, and receive an event with each change",
	protocol.FeedWorkers:            "observe it, and receive an event with each change",
}

// refusePrivate refuses calls of the private functions.
func (s *Service) refusePrivate() error {
	errs := make([]error, 0, len(private))
	for id, instead := range private {
		refusal := mesh.ErrorAnswer(protocol.Errorf(protocol.CodeForbidden, "%s is private to the mesh: %s", id, instead))
		_, err := s.mesh.Raw(endpointName(id), protocol.FunctionSubject("*", id), mesh.QueueGroup, func(m *nats.Msg) {
			if err := m.RespondMsg(refusal); err != nil {
				s.log.Debug("a call could not be refused", "function", id, "error", err)
			}
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
