package gateway

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type waitingInput struct {
	Source

	Execution string `query:"execution" doc:"Only this execution's."`
	After     string `query:"after" maxLength:"1000" doc:"next of the page before."`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"At most this many."`
}

// waitingSelection is what an operation on waiting messages acts on: exactly
// one field is set.
type waitingSelection struct {
	Selection

	Execution string `json:"execution,omitempty" doc:"Those of an execution."`
}

type waitingActInput struct{ Body waitingSelection }

func (s *Service) waiting(api huma.API) {
	tags := []string{"waiting messages"}
	operation(api, huma.Operation{
		OperationID: "list-waiting", Method: http.MethodGet, Path: "/waiting", Tags: tags,
		Summary: "List the messages that wait, those due first in front: until when, and why",
	}, s.listWaiting)
	acting[waitingActInput, protocol.WaitingActRequest, protocol.WaitingActReply](s, api, "/waiting/", tags, []act{
		{"release-waiting", "release", protocol.SubjectWaitingNow, "Let messages go at once, without waiting for their time; it costs no try"},
		{"cancel-waiting", "cancel", protocol.SubjectWaitingCancel, "Remove waiting messages for good; they are counted as discarded"},
	})
}

func (in *waitingActInput) request() (protocol.WaitingActRequest, error) {
	w := &in.Body
	queue, topic, err := w.names(w.Execution != "")
	return protocol.WaitingActRequest{MessageID: w.MessageID, Queue: queue, Topic: topic, Execution: w.Execution, All: w.All, By: askedByHTTP}, cmp.Or(err, checkOnly(w.Execution))
}

func (s *Service) listWaiting(ctx context.Context, in *waitingInput) (*answer[protocol.WaitingPage], error) {
	queue, topic, err := in.names()
	if err == nil {
		err = checkOnly(in.Execution)
	}
	if err != nil {
		return nil, err
	}
	q := protocol.WaitingListRequest{Queue: queue, Topic: topic, Execution: in.Execution, After: in.After, Limit: in.Limit}
	return answered(mesh.Request[protocol.WaitingPage](ctx, s.nc, protocol.SubjectWaitingList, q))
}
