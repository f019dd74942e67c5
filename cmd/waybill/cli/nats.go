package cli

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/natsserver"
)

type natsCmd struct {
	Data       string     `default:"waybill-data" help:"Directory that holds everything; it belongs to one process." placeholder:"DIR" type:"path"`
	Listen     string     `default:"127.0.0.1:4222" help:"Where NATS listens; port 0 takes a free one." placeholder:"HOST:PORT"`
	Sync       string     `default:"always" help:"When what is answered is on disk: always (before), or the time between two fsyncs, such as 2m." placeholder:"always|DURATION"`
	AcceptLoss bool       `help:"Start on a damaged store without what cannot be read."`
	LogLevel   slog.Level `default:"warn" help:"Least level that is logged: debug, info, warn, error."`
}

// natsStop is how long NATS may take to close its store.
const natsStop = 30 * time.Second

func (c *natsCmd) Run(a *app) error {
	sync, err := up.ParseSync(c.Sync)
	if err != nil {
		return err
	}
	host, port, err := up.SplitAddress("--listen", c.Listen)
	if err != nil {
		return err
	}
	s, err := natsserver.Start(a.ctx, natsserver.Options{
		DataDir: c.Data, Host: host, Port: cmp.Or(port, -1),
		SyncInterval: time.Duration(sync), AcceptLoss: c.AcceptLoss, WholeDisk: true, Logger: a.log(c.LogLevel),
	})
	if err != nil {
		return started(a, "nats", err)
	}
	if err := s.TellSpace(); err != nil {
		return errors.Join(err, stopNATS(s))
	}
	a.sayf("NATS is up: %s, data in %s", s.URL(), c.Data)
	a.sayf("%s; now start the services: waybill-registry, waybill-retry, waybill-dlq, waybill-router and waybill-gateway, each with --nats %s", sync, s.URL())
	if err := s.Watch(a.ctx.Done()); err != nil {
		return errors.Join(err, stopNATS(s))
	}
	a.hintf("stopping; a second signal ends it at once")
	return stopNATS(s)
}

func stopNATS(s *natsserver.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), natsStop)
	defer cancel()
	return s.Stop(ctx)
}
