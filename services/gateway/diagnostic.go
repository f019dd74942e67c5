package gateway

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/gateway/diagnose"
)

const (
	// diagnosticPath is where a diagnosis is asked for.
	diagnosticPath = "/api/v1/system/mq-diagnostic"
	// maxDiagnoses run at once; further ones wait for their turn.
	maxDiagnoses = 4
	// diagnosisTime bounds one with all its tidying up, and the wait for its turn.
	diagnosisTime = diagnose.DefaultTimeout + 30*time.Second
)

// diagnostic sends a message of its own through every route and topic that is
// subscribed to, and answers with one line for each: 200 when all got through,
// else 503. It is text, or JSON if that is accepted or asked for by format=json.
func (s *Service) diagnostic(w http.ResponseWriter, r *http.Request) {
	// A writer that takes no deadline has none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(diagnosisTime + writeTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), diagnosisTime)
	defer cancel()
	report, err := s.diagnose(ctx)
	wantsJSON := strings.Contains(r.Header.Get("Accept"), "json") || r.URL.Query().Get("format") == "json"
	status := http.StatusOK
	if err != nil || !report.OK {
		status = http.StatusServiceUnavailable
	}
	switch {
	case err != nil && wantsJSON:
		answerJSON(w, status, protocol.AsError(err))
	case err != nil:
		answerText(w, status, "FAILED  "+err.Error()+"\n")
	case wantsJSON:
		answerJSON(w, status, report)
	default:
		answerText(w, status, report.Text())
	}
}

func (s *Service) diagnose(ctx context.Context) (*diagnose.Report, error) {
	select {
	case s.diagnoses <- struct{}{}:
		defer func() { <-s.diagnoses }()
	case <-ctx.Done():
		return nil, protocol.Errorf(protocol.CodeTimeout, "%d diagnoses are under way: ask again when they are done", maxDiagnoses)
	}
	return diagnose.Run(ctx, diagnose.Options{NC: s.nc, Connect: s.worker, Logger: s.log})
}

// worker connects to the mesh as a program that works for it does.
func (s *Service) worker(ctx context.Context) (*client.Client, error) {
	opts := s.o.Mesh.Options
	if s.o.Mesh.InProcess != nil {
		opts = append(opts[:len(opts):len(opts)], nats.InProcessServer(s.o.Mesh.InProcess))
	}
	return client.Connect(ctx, cmp.Or(s.o.Mesh.URL, nats.DefaultURL),
		client.Name(s.o.Mesh.Name), client.Logger(s.log), client.NATS(opts...))
}
