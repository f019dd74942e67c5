package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type observersInput struct {
	Page

	Topic   string `query:"topic" doc:"Only this topic's."`
	Orphans bool   `query:"orphans" doc:"Only those that nobody observes as."`
}

// observerInput names an observer or a group.
type observerInput struct {
	Queue string `path:"queue" maxLength:"600" doc:"TOPIC::observer:ID or TOPIC::@GROUP."`
}

func (s *Service) observers(api huma.API) {
	tags := []string{"observers"}
	operation(api, huma.Operation{
		OperationID: "list-observers", Method: http.MethodGet, Path: "/observers", Tags: tags,
		Summary:     "List the observers and groups of topics: what they hold, who takes it, and since when nobody does",
		Description: "In order of queue. A page may have fewer than were asked for; the next one is after the field next, if that is there.",
	}, s.listObservers)
	operation(api, huma.Operation{
		OperationID: "show-observer", Method: http.MethodGet, Path: "/observers/{queue}", Tags: tags,
		Summary: "Show one observer or group",
	}, s.showObserver)
	operation(api, huma.Operation{
		OperationID: "remove-observer", Method: http.MethodDelete, Path: "/observers/{queue}", Tags: tags,
		Summary:     "Remove an observer or a group that nobody observes as any more",
		Description: "All that its queue holds is discarded, its dead letters included. CONFLICT: somebody observes as it.",
	}, s.removeObserver)
}

func (s *Service) listObservers(ctx context.Context, in *observersInput) (*answer[protocol.ObserversPage], error) {
	q := protocol.ObserversRequest{Topic: in.Topic, Orphans: in.Orphans, After: in.After, Limit: in.Limit}
	return answered(mesh.Request[protocol.ObserversPage](ctx, s.nc, protocol.SubjectObservers, q))
}

func (s *Service) showObserver(ctx context.Context, in *observerInput) (*answer[protocol.ObserverInfo], error) {
	page, err := mesh.Request[protocol.ObserversPage](ctx, s.nc, protocol.SubjectObservers, protocol.ObserversRequest{Queue: in.Queue})
	if err != nil {
		return nil, err
	}
	if len(page.Observers) == 0 {
		return nil, protocol.Errorf(protocol.CodeNotFound, "there is no observer or group with the queue %s", in.Queue)
	}
	return answered(page.Observers[0], nil)
}

func (s *Service) removeObserver(ctx context.Context, in *observerInput) (*answer[protocol.ObserverRemoved], error) {
	q := protocol.ObserverRemoveRequest{Queue: in.Queue}
	return answered(mesh.Request[protocol.ObserverRemoved](ctx, s.nc, protocol.SubjectObserverRemove, q))
}
