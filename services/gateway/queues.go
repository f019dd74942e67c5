package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Page says which part of a list in order of name is asked for.
type Page struct {
	After string `query:"after" maxLength:"600" doc:"Go on after this name, the last of the page before. Default: from the beginning."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"At most this many."`
}

type queuesInput struct {
	Page

	Execution string `query:"execution" doc:"Only this execution's."`
	Queue     string `query:"queue" doc:"Only this queue: EXECUTION/ROUTE, a named queue's NAME, TOPIC::observer:ID or TOPIC::@GROUP."`
}

func (s *Service) queues(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "list-queues", Method: http.MethodGet, Path: "/queues", Tags: []string{"queues"},
		Summary: "List queues with what is in them, in order of name",
	}, s.listQueues)
}

func (s *Service) listQueues(ctx context.Context, in *queuesInput) (*answer[operate.QueuePage], error) {
	q := protocol.QueuesRequest{Execution: in.Execution, After: in.After, Limit: in.Limit}
	err := checkOnly(in.Execution)
	if err != nil {
		return nil, err
	}
	if in.Queue != "" {
		if q.Queue, err = operate.QueueName(in.Queue); err != nil {
			return nil, err
		}
	}
	return answered(operate.Queues(ctx, s.nc, q))
}

// checkOnly refuses what is no execution's id, if one is given: nothing would be
// listed, as of one that is empty.
func checkOnly(execution string) error {
	if execution == "" {
		return nil
	}
	return scope.CheckExecution(execution)
}
