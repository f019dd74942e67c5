package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/waybill-mq/waybill/internal/telemetry"
)

// Service is what all services are.
type Service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
}

// committing is what a shutdown may take beyond the drain.
const committing = 10 * time.Second

// Run runs a service until SIGINT or SIGTERM, or until it ends by itself, and
// returns the program's exit code: 1, with the reason on stderr, for anything
// but an orderly end. A second signal ends the program at once. With f.Check it
// only asks a service that runs already.
func Run(service, version string, f *Flags, stderr io.Writer, construct func(*slog.Logger) (Service, error)) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next one is the system's
	var err error
	if f.Check {
		err = ask(ctx, service, f)
	} else {
		err = run(ctx, service, version, f, f.logger(stderr), construct)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "waybill-%s: %v\n", service, err)
		return 1
	}
	return 0
}

func run(ctx context.Context, service, version string, f *Flags, log *slog.Logger, construct func(*slog.Logger) (Service, error)) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	flush, err := telemetry.Start(ctx, "waybill-"+service, f.Name, version, log)
	if err != nil {
		return err
	}
	defer flush()
	s, err := construct(log)
	if err != nil {
		return err
	}
	if err := look(ctx, service, f, log); err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	defer SpareMemory()()
	log.Info("serving", "service", service, "name", f.Name)
	select {
	case <-ctx.Done():
		log.Info("stopping", "service", service)
	case <-s.Done(): // it cannot go on
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.Drain+committing)
	defer cancel()
	return errors.Join(s.Stop(bounded), s.Err())
}
