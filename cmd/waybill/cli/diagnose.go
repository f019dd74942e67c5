package cli

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/gateway/diagnose"
)

type diagnoseCmd struct {
	Timeout time.Duration `default:"25s" help:"How long it may try." placeholder:"TIME"`
}

// errNotThrough makes diagnose exit with ExitFailure.
var errNotThrough = errors.New("some messages do not get through")

func (c *diagnoseCmd) Run(a *app) error {
	nc, err := a.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	report, err := diagnose.Run(a.ctx, diagnose.Options{
		NC: nc, Timeout: c.Timeout, Logger: a.log(slog.LevelWarn),
		Connect: func(context.Context) (*client.Client, error) { return a.client(client.Name("waybill-diagnosis")) },
	})
	if err != nil {
		return unreachable(err)
	}
	if err := a.show(report, func() { a.sayf("%s", report.Text()) }); err != nil || report.OK {
		return err
	}
	return errNotThrough
}
