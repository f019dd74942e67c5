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

type executionInput struct {
	Execution string `path:"execution" doc:"The execution's id."`
}

func (s *Service) executions(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "list-executions", Method: http.MethodGet, Path: "/executions", Tags: []string{"executions"},
		Summary: "List executions with what is in them, those that are closed included, in order of id",
	}, s.listExecutions)
	for _, of := range []struct {
		id, verb, summary string
		do                func(context.Context, string) (protocol.Execution, error)
	}{
		{"close-execution", "close", "Take no more messages for an execution; what is there is finished", s.closer(false)},
		{"purge-execution", "purge", "Close an execution and drop what is there: ready, waiting and dead", s.closer(true)},
		{"reopen-execution", "reopen", "Let a closed execution take messages again", s.reopenExecution},
	} {
		operation(api, huma.Operation{
			OperationID: of.id, Method: http.MethodPost, Path: "/executions/{execution}/" + of.verb, Tags: []string{"executions"},
			Summary: of.summary,
		}, func(ctx context.Context, in *executionInput) (*answer[protocol.Execution], error) {
			if err := scope.CheckExecution(in.Execution); err != nil {
				return nil, err
			}
			return answered(of.do(ctx, in.Execution))
		})
	}
}

func (s *Service) listExecutions(ctx context.Context, in *Page) (*answer[operate.ExecutionPage], error) {
	return answered(operate.Executions(ctx, s.nc, protocol.ExecutionsRequest{After: in.After, Limit: in.Limit}))
}

func (s *Service) closer(purge bool) func(context.Context, string) (protocol.Execution, error) {
	return func(ctx context.Context, execution string) (protocol.Execution, error) {
		return mesh.Request[protocol.Execution](ctx, s.nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: execution, Purge: purge})
	}
}

func (s *Service) reopenExecution(ctx context.Context, execution string) (protocol.Execution, error) {
	_, err := mesh.Request[protocol.Empty](ctx, s.nc, protocol.SubjectExecutionReopen, protocol.ExecutionReopenRequest{Execution: execution})
	return protocol.Execution{Execution: execution, State: protocol.ExecutionOpen}, err
}
