package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/gateway/diagnose"
)

const (
	// maxDiagnoses run at once; further ones wait for their turn.
	maxDiagnoses = 4
	// diagnosisWriteTimeout is beyond a diagnosis that tidies up for long.
	diagnosisWriteTimeout = 2 * writeTimeout
)

type diagnosticInput struct {
	Format string `query:"format" enum:"text,json" doc:"json is the same as accepting application/json."`
	Accept string `header:"Accept"`
}

type diagnosticOutput struct {
	Status      int
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Service) diagnostic(api huma.API) {
	report := &huma.Response{
		Description: "One line for each route and topic that is subscribed to.",
		Content: map[string]*huma.MediaType{
			"text/plain":       {Schema: &huma.Schema{Type: huma.TypeString}},
			"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[diagnose.Report](), true, "")},
		},
	}
	failed := *report
	failed.Description = "As with 200, and some messages do not get through; or a problem, if it is not known who subscribes to what."
	failed.Content = map[string]*huma.MediaType{
		"text/plain": report.Content["text/plain"], "application/json": report.Content["application/json"],
		problemJSON: {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "")},
	}
	operation(api, huma.Operation{
		OperationID: "mq-diagnostic", Method: http.MethodPost, Path: "/system/mq-diagnostic", Tags: []string{"mesh"},
		Summary:     "Send a message of its own through every route and topic that is subscribed to, and back",
		Description: "On executions and topics of its own, on the same lanes: no handler is called, and nothing is left.",
		Responses:   map[string]*huma.Response{"200": report, "503": &failed},
		Middlewares: huma.Middlewares{patiently},
	}, s.diagnose)
}

// patiently gives the answer more time than others have.
func patiently(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	// A writer that takes no deadline has none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(diagnosisWriteTimeout))
	next(ctx)
}

func (s *Service) diagnose(ctx context.Context, in *diagnosticInput) (*diagnosticOutput, error) {
	select {
	case s.diagnoses <- struct{}{}:
		defer func() { <-s.diagnoses }()
	case <-ctx.Done():
		return nil, protocol.Errorf(protocol.CodeTimeout, "%d diagnoses are under way: ask again when they are done", maxDiagnoses)
	}
	report, err := diagnose.Run(ctx, diagnose.Options{NC: s.nc, Connect: s.connectClient, Logger: s.log})
	if err != nil {
		return nil, err
	}
	out := &diagnosticOutput{Status: http.StatusOK, ContentType: "text/plain; charset=utf-8", Body: []byte(report.Text())}
	if !report.OK {
		out.Status = http.StatusServiceUnavailable
	}
	if in.Format == "json" || strings.Contains(in.Accept, "json") {
		out.ContentType = "application/json"
		out.Body, err = json.Marshal(report)
	}
	return out, err
}
