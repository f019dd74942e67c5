package cli

import (
	"log/slog"
	"os"

	"github.com/waybill-mq/waybill/internal/telemetry"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// traced runs a command in the trace that this program was started in
// (TRACEPARENT), with its spans going where OTEL_ variables say.
func (a *app) traced(run func() error) error {
	flush, err := telemetry.Start(a.ctx, "waybill", "", a.version, a.log(slog.LevelWarn))
	if err != nil {
		return err
	}
	defer flush()
	a.ctx = tracing.FromEnvironment(a.ctx, os.Getenv)
	return run()
}
