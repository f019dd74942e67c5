package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/operate"
)

// askedByHTTP is who asks, in the stories of messages: nobody says more.
const askedByHTTP = "HTTP"

type whyInput struct {
	ID string `path:"id" doc:"The message's id, as a publish is answered with."`
}

func (s *Service) why(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "why", Method: http.MethodGet, Path: "/messages/{id}", Tags: []string{"queues"},
		Summary: "One message's life, in each queue it came to",
		Description: "The logs of all services are read, which takes the longer the more they hold. " +
			"What happened to a message is kept with it: its last 32 failed attempts, redrives and releases.",
	}, func(ctx context.Context, in *whyInput) (*answer[operate.Story], error) {
		return answered(operate.Why(ctx, s.nc, in.ID))
	})
}
