package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type subscriptionsInput struct {
	Part

	Execution string `query:"execution" doc:"Only this execution's."`
}

// Part says which part of a list without names of its own is asked for.
type Part struct {
	Offset int `query:"offset" minimum:"0" maximum:"1000000000" doc:"After this many."`
	Limit  int `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"At most this many."`
}

func (s *Service) subscriptions(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "list-subscriptions", Method: http.MethodGet, Path: "/subscriptions", Tags: []string{"workers"},
		Summary: "List who works on which queue, and how",
	}, s.listSubscriptions)
}

func (s *Service) listSubscriptions(ctx context.Context, in *subscriptionsInput) (*answer[protocol.SubscriptionsPage], error) {
	q := protocol.SubscriptionsRequest{Execution: in.Execution, Offset: in.Offset, Limit: in.Limit, Effective: true}
	return answered(mesh.Request[protocol.SubscriptionsPage](ctx, s.nc, protocol.SubjectSubscription, q))
}

func (s *Service) workers(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "list-workers", Method: http.MethodGet, Path: "/workers", Tags: []string{"workers"},
		Summary: "List workers with all they take and serve, in order of id",
	}, s.listWorkers)
}

func (s *Service) listWorkers(ctx context.Context, in *Page) (*answer[protocol.WorkersPage], error) {
	return answered(mesh.Request[protocol.WorkersPage](ctx, s.nc, protocol.SubjectWorkers, protocol.WorkersRequest{After: in.After, Limit: in.Limit}))
}
