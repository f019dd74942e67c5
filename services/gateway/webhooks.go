package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// followWebhooks opens the bucket, works for what is in it until Stop, and
// serves what the CLI asks.
func (s *Service) followWebhooks(ctx context.Context) error {
	store, err := openWebhooks(ctx, s.nc, s.o.Replicas)
	if err != nil {
		return err
	}
	h := &webhooks{store: store, secrets: secretFiles(s.o.WebhookSecrets), client: s.client, caller: newCaller(), calls: newCalls(), log: s.log, running: map[string]*webhook{}}
	s.webhooks = h
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.follow(following)
		h.caller.CloseIdleConnections()
	}()
	s.stop.Add("webhooks", func(context.Context) error { // bounded by Options.Drain
		end()
		<-ended
		return nil
	})
	return errors.Join(
		mesh.Endpoint(s.mesh, "webhook-set", protocol.SubjectWebhookSet, h.set),
		mesh.Endpoint(s.mesh, "webhook-show", protocol.SubjectWebhookShow, h.show),
		mesh.Endpoint(s.mesh, "webhook-remove", protocol.SubjectWebhookRemove, h.remove),
		mesh.Endpoint(s.mesh, "webhook-rotate", protocol.SubjectWebhookRotate, h.rotate),
		mesh.Endpoint(s.mesh, "webhooks", protocol.SubjectWebhooks, h.list),
	)
}

type webhookInput struct {
	Name string `path:"name" doc:"The webhook's name."`
}

type webhookAddInput struct{ Body NewWebhook }

// NewWebhook is a webhook and, if it is to have one of its own, its secret.
type NewWebhook struct {
	Name string `json:"name" doc:"[A-Za-z0-9_-]{1,64}"`
	protocol.WebhookSpec

	Secret string `json:"secret,omitempty" doc:"Signs its calls: whsec_ and 24 to 64 bytes in base64. Default a random one."`
}

type webhookReplaceInput struct {
	Name     string `path:"name" doc:"The webhook's name."`
	Revision uint64 `query:"revision" doc:"Replace it only if it has this revision."`
	Body     protocol.WebhookSpec
}

type webhookRotateInput struct {
	Name string `path:"name" doc:"The webhook's name."`
	Body *NewSecret
}

// NewSecret is a secret of the operator's choice.
type NewSecret struct {
	Secret string `json:"secret,omitempty" doc:"whsec_ and 24 to 64 bytes in base64. Default a random one."`
}

func (s *Service) webhookOperations(api huma.API) {
	h, tags := s.webhooks, []string{"webhooks"}
	operation(api, huma.Operation{
		OperationID: "list-webhooks", Method: http.MethodGet, Path: "/webhooks", Tags: tags, Summary: "List webhooks, in order of name",
	}, func(ctx context.Context, in *Page) (*answer[protocol.WebhooksPage], error) {
		return answered(h.list(ctx, protocol.WebhooksRequest{After: in.After, Limit: in.Limit}))
	})
	operation(api, huma.Operation{
		OperationID: "add-webhook", Method: http.MethodPost, Path: "/webhooks", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Have messages handled by an HTTP POST", Description: "The secret that signs its calls is shown in this answer and never again.",
	}, func(ctx context.Context, in *webhookAddInput) (*answer[protocol.WebhookSecret], error) {
		return answered(h.set(ctx, protocol.WebhookSetRequest{Name: in.Body.Name, WebhookSpec: in.Body.WebhookSpec, Secret: in.Body.Secret}))
	})
	operation(api, huma.Operation{
		OperationID: "show-webhook", Method: http.MethodGet, Path: "/webhooks/{name}", Tags: tags, Summary: "Show a webhook",
	}, func(ctx context.Context, in *webhookInput) (*answer[protocol.Webhook], error) {
		return answered(h.show(ctx, protocol.WebhookRequest{Name: in.Name}))
	})
	operation(api, huma.Operation{
		OperationID: "replace-webhook", Method: http.MethodPut, Path: "/webhooks/{name}", Tags: tags,
		Summary: "Define a webhook anew; it keeps its secret",
	}, func(ctx context.Context, in *webhookReplaceInput) (*answer[protocol.WebhookSecret], error) {
		return answered(h.set(ctx, protocol.WebhookSetRequest{Name: in.Name, WebhookSpec: in.Body, Replace: true, Revision: in.Revision}))
	})
	operation(api, huma.Operation{
		OperationID: "remove-webhook", Method: http.MethodDelete, Path: "/webhooks/{name}", Tags: tags,
		Summary: "Remove a webhook; what its queue holds stays there",
	}, func(ctx context.Context, in *webhookInput) (*nothing, error) {
		_, err := h.remove(ctx, protocol.WebhookRequest{Name: in.Name})
		return nil, err
	})
	operation(api, huma.Operation{
		OperationID: "rotate-webhook-secret", Method: http.MethodPost, Path: "/webhooks/{name}/rotate", Tags: tags,
		Summary: "Give a webhook another secret; calls are signed with both for a day",
	}, func(ctx context.Context, in *webhookRotateInput) (*answer[protocol.WebhookSecret], error) {
		q := protocol.WebhookRotateRequest{Name: in.Name}
		if in.Body != nil {
			q.Secret = in.Body.Secret
		}
		return answered(h.rotate(ctx, q))
	})
}
