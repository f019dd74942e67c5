package gateway

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// JobQueue names a named queue.
type JobQueue struct {
	Queue string `path:"queue" doc:"The named queue, such as default."`
}

// definitionInput is a definition of which anything may be left out.
type definitionInput struct {
	JobQueue

	Body map[string]json.RawMessage `doc:"As protocol.md has it; what is left out is the default."`
}

type removeQueueInput struct {
	JobQueue

	Purge bool `query:"purge" doc:"Discard the jobs it holds; without it a queue that holds any is refused (CONFLICT)."`
}

type enqueueInput struct {
	JobQueue

	Function  string `query:"function" required:"true" doc:"The id of the function."`
	Namespace string `query:"namespace" default:"default" doc:"The function's namespace."`
	Receipt   string `query:"receipt" maxLength:"256" doc:"Your own name for the job; it is delivered with it."`
	Publication
}

func (s *Service) jobs(api huma.API) {
	const base = "/job-queues"
	tags := []string{"jobs"}
	operation(api, huma.Operation{
		OperationID: "list-job-queues", Method: http.MethodGet, Path: base, Tags: tags,
		Summary: "List named queues with their definitions, in order of name",
	}, s.listJobQueues)
	operation(api, huma.Operation{
		OperationID: "show-job-queue", Method: http.MethodGet, Path: base + "/{queue}", Tags: tags,
		Summary: "Show a named queue: how it is defined, and what it holds",
	}, s.showJobQueue)
	operation(api, huma.Operation{
		OperationID: "define-job-queue", Method: http.MethodPut, Path: base + "/{queue}", Tags: tags,
		Summary: "Define a named queue, or change it", Description: "It is answered when the definition is stored and in force.",
	}, s.defineJobQueue)
	operation(api, huma.Operation{
		OperationID: "remove-job-queue", Method: http.MethodDelete, Path: base + "/{queue}", Tags: tags,
		Summary: "Remove a named queue; its dead letters stay",
	}, s.removeJobQueue)
	operation(api, huma.Operation{
		OperationID: "enqueue-job", Method: http.MethodPost, Path: base + "/{queue}/jobs", Tags: tags, MaxBodyBytes: s.nc.MaxPayload(),
		Summary: "Leave a job for a function in a named queue", Description: "The function's input is the body. " + publishDescription,
	}, s.enqueueJob)
	api.OpenAPI().Paths[apiPrefix+base+"/{queue}/jobs"].Post.RequestBody.Required = false // an input may be empty
}

func (s *Service) listJobQueues(ctx context.Context, in *Page) (*answer[protocol.DefinitionsPage], error) {
	q := protocol.DefinitionsRequest{After: in.After, Limit: in.Limit, Effective: true}
	return answered(mesh.Request[protocol.DefinitionsPage](ctx, s.nc, protocol.SubjectDefinitions, q))
}

func (s *Service) showJobQueue(ctx context.Context, in *JobQueue) (*answer[*operate.NamedQueue], error) {
	return answered(operate.ShowNamed(ctx, s.nc, in.Queue))
}

func (s *Service) defineJobQueue(ctx context.Context, in *definitionInput) (*answer[protocol.DefineReply], error) {
	config, err := json.Marshal(in.Body)
	if err != nil {
		return nil, err
	}
	q := protocol.DefineRequest{Queue: in.Queue, Config: config}
	return answered(mesh.Request[protocol.DefineReply](ctx, s.nc, protocol.SubjectDefine, q))
}

func (s *Service) removeJobQueue(ctx context.Context, in *removeQueueInput) (*answer[protocol.QueueRemoved], error) {
	removed, err := mesh.Request[protocol.QueueRemoved](ctx, s.nc, protocol.SubjectQueueRemove, protocol.QueueRemoveRequest{Queue: in.Queue, Purge: in.Purge})
	if err == nil && !removed.Removed {
		err = protocol.Errorf(protocol.CodeNotFound, "there is no named queue %s that somebody has defined", in.Queue)
	}
	return answered(removed, err)
}

func (s *Service) enqueueJob(ctx context.Context, in *enqueueInput) (*answer[protocol.PublishAck], error) {
	m, err := in.message(client.Job(in.Queue, in.Namespace, in.Function))
	if err != nil {
		return nil, err
	}
	m.JobReceipt = in.Receipt
	s.inSpan(ctx, &m)
	return s.published(ctx, m)
}
