package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type brokersInput struct {
	Count bool `query:"count" default:"true" doc:"Look at how much each holds, which takes a while with many queues."`
}

// brokerList is what brokers there are.
type brokerList struct {
	Brokers []protocol.BrokerInfo `json:"brokers" nullable:"false"`
}

func (s *Service) brokers(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "list-brokers", Method: http.MethodGet, Path: "/brokers", Tags: []string{tagMesh},
		Summary: "List the brokers that messages are on, with their states, routes and what they hold",
	}, s.listBrokers)
}

func (s *Service) listBrokers(ctx context.Context, in *brokersInput) (*answer[brokerList], error) {
	all, err := operate.Brokers(ctx, s.nc, in.Count)
	return answered(brokerList{all}, err)
}
