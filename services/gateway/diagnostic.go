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
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
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
	report, err := s.tryAll(ctx)
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

const (
	// What there is to try is asked for again when workers have changed, but is
	// not asked for more than a twentieth of the time, and after a while in any case.
	learnEvery = time.Minute
	learnPause = 5 * time.Second
	learnPart  = 20
	learnTime  = 10 * time.Second // an answer may take
)

func (s *Service) workersChanged(*nats.Msg) {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// learn keeps in mind what there is to try, for when nobody can be asked, and
// says whether it could be.
func (s *Service) learn(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	known, err := diagnose.Known(ctx, s.nc)
	if err != nil {
		return false
	}
	s.diagnosed.Store(known)
	return true
}

// learnAgain learns when there may be something new.
func (s *Service) learnAgain(ctx context.Context, known bool, took time.Duration) {
	for {
		mesh.Pause(ctx, max(learnPause, learnPart*took))
		if known {
			s.awaitChange(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		known = s.learn(ctx)
		took = time.Since(began)
	}
}

// awaitChange returns when workers have changed, after learnEvery in any case.
func (s *Service) awaitChange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, learnEvery)
	defer cancel()
	select {
	case <-s.changed:
	case <-ctx.Done():
	}
}

// tryAll runs a diagnosis. When nobody can be asked what there is to try, it is
// what was last known, and all of it has failed.
func (s *Service) tryAll(ctx context.Context) (*diagnose.Report, error) {
	report, err := diagnose.Run(ctx, diagnose.Options{NC: s.nc, Connect: s.connectClient, Logger: s.log})
	if err == nil {
		s.diagnosed.Store(report)
		return report, nil
	}
	if earlier := s.diagnosed.Load(); earlier != nil {
		return diagnose.Unreachable(earlier, err), nil
	}
	return nil, err
}
