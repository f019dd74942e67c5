package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type functionsInput struct {
	Namespace string `query:"namespace" doc:"Only this namespace's."`
}

type functionInput struct {
	Namespace string `path:"namespace" doc:"The function's namespace, such as default."`
	Function  string `path:"function" doc:"The function's id."`
	RawBody   []byte
}

// functionOutput is what a function returned, byte for byte.
type functionOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Service) functions(api huma.API) {
	tags := []string{"functions"}
	operation(api, huma.Operation{
		OperationID: "list-functions", Method: http.MethodGet, Path: "/functions", Tags: tags,
		Summary: "List the functions that workers serve",
	}, func(ctx context.Context, in *functionsInput) (*answer[protocol.FunctionsPage], error) {
		return answered(mesh.Request[protocol.FunctionsPage](ctx, s.nc, protocol.SubjectFunctions, protocol.FunctionsRequest{Namespace: in.Namespace}))
	})
	const path = "/functions/{namespace}/{function}"
	bytes := map[string]*huma.MediaType{octets: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	operation(api, huma.Operation{
		OperationID: "call-function", Method: http.MethodPost, Path: path, Tags: tags, MaxBodyBytes: s.nc.MaxPayload(),
		Summary: "Call a function", Description: "Its input is the body, its output the answer, byte for byte.",
		Responses: map[string]*huma.Response{"200": {Description: "What the function returned.", Content: bytes}},
	}, s.callFunction)
	api.OpenAPI().Paths[apiPrefix+path].Post.RequestBody.Required = false // an input may be empty
}

const octets = "application/octet-stream"

func (s *Service) callFunction(ctx context.Context, in *functionInput) (*functionOutput, error) {
	output, err := s.client.Call(ctx, in.Namespace, in.Function, in.RawBody)
	if err != nil {
		return nil, err
	}
	return &functionOutput{octets, output}, nil
}
