package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// messageInput names a message.
type messageInput struct {
	ID string `path:"id" format:"uuid" doc:"The message's id."`
}

// Source says whose messages are asked for.
type Source struct {
	Queue string `query:"queue" doc:"Only this queue's: EXECUTION/ROUTE, a named queue's NAME, TOPIC::observer:ID or TOPIC::@GROUP."`
	Topic string `query:"topic" doc:"Only those of all that subscribe to this topic."`
}

func (f *Source) names() (queue, topic string, err error) {
	switch {
	case f.Queue != "" && f.Topic != "":
		return "", "", protocol.Errorf(protocol.CodeInvalidArgs, "queue and topic: give one of them")
	case f.Queue != "":
		queue, err = operate.QueueName(f.Queue)
	case f.Topic != "":
		topic, err = scope.Topic(f.Topic)
	}
	return queue, topic, err
}

type deadLettersInput struct {
	Source
	Part
}

// Selection is what an operation acts on: exactly one field is set, so that
// nothing is hit by leaving something out.
type Selection struct {
	MessageID string `json:"message_id,omitempty" format:"uuid" doc:"One message."`
	Queue     string `json:"queue,omitempty" doc:"Those of a queue: EXECUTION/ROUTE, a named queue's NAME, TOPIC::observer:ID or TOPIC::@GROUP."`
	Topic     string `json:"topic,omitempty" doc:"Those of all that subscribe to this topic."`
	All       bool   `json:"all,omitempty" doc:"All of all queues."`
}

// names checks what is set and gives the queue and the topic their names.
func (s *Selection) names(more ...bool) (queue, topic string, err error) {
	set := 0
	for _, is := range append(more, s.MessageID != "", s.Queue != "", s.Topic != "", s.All) {
		if is {
			set++
		}
	}
	if set != 1 {
		return "", "", protocol.Errorf(protocol.CodeInvalidArgs, "the request names %d of the things it can act on: name exactly one; all is {\"all\": true}", set)
	}
	return (&Source{s.Queue, s.Topic}).names()
}

type deadActInput struct{ Body Selection }

func (s *Service) deadLetters(api huma.API) {
	tags := []string{"dead letters"}
	operation(api, huma.Operation{
		OperationID: "list-dead-letters", Method: http.MethodGet, Path: "/dead-letters", Tags: tags,
		Summary: "List dead letters, oldest first, without payloads and headers",
	}, s.listDeadLetters)
	operation(api, huma.Operation{
		OperationID: "show-dead-letter", Method: http.MethodGet, Path: "/dead-letters/{id}", Tags: tags,
		Summary: "Show one dead letter, whole",
	}, s.showDeadLetter)
	acting[deadActInput, protocol.DeadActRequest, protocol.DeadActReply](s, api, "/dead-letters/", tags, []act{
		{"redrive-dead-letters", "redrive", protocol.SubjectDeadRedrive, "Send dead letters back to their queues, with all their tries anew"},
		{"discard-dead-letters", "discard", protocol.SubjectDeadDiscard, "Remove dead letters for good"},
	})
}

// act is an operation that does something to messages.
type act struct{ id, verb, subject, summary string }

// selecting is the input of one, which becomes what the service is asked.
type selecting[I, Q any] interface {
	*I
	request() (Q, error)
}

// acting adds the operations on one kind of messages.
func acting[I, Q, R any, P selecting[I, Q]](s *Service, api huma.API, path string, tags []string, acts []act) {
	for _, of := range acts {
		operation(api, huma.Operation{
			OperationID: of.id, Method: http.MethodPost, Path: path + of.verb, Tags: tags,
			Summary: of.summary, Description: "Exactly one field is set. What arrives after the request is not touched; a count of 0 is no error.",
		}, func(ctx context.Context, in *I) (*answer[R], error) {
			q, err := P(in).request()
			if err != nil {
				return nil, err
			}
			return answered(mesh.Request[R](ctx, s.nc, of.subject, q))
		})
	}
}

func (in *deadActInput) request() (protocol.DeadActRequest, error) {
	queue, topic, err := in.Body.names()
	return protocol.DeadActRequest{MessageID: in.Body.MessageID, Queue: queue, Topic: topic, All: in.Body.All, By: askedByHTTP}, err
}

func (s *Service) listDeadLetters(ctx context.Context, in *deadLettersInput) (*answer[protocol.DeadPage], error) {
	queue, topic, err := in.names()
	if err != nil {
		return nil, err
	}
	q := protocol.DeadListRequest{Queue: queue, Topic: topic, Offset: in.Offset, Limit: in.Limit}
	return answered(mesh.Request[protocol.DeadPage](ctx, s.nc, protocol.SubjectDeadList, q))
}

func (s *Service) showDeadLetter(ctx context.Context, in *messageInput) (*answer[protocol.DeadLetter], error) {
	return answered(mesh.Request[protocol.DeadLetter](ctx, s.nc, protocol.SubjectDeadShow, protocol.DeadShowRequest{MessageID: in.ID}))
}
