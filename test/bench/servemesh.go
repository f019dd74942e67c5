package main

import (
	"context"
	"os"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/services/dlq"
	"github.com/waybill-mq/waybill/services/registry"
	"github.com/waybill-mq/waybill/services/retry"
	"github.com/waybill-mq/waybill/services/router"
)

type serveMeshCommand struct {
	Sync time.Duration `help:"Time between fsyncs; 0: before each answer."`
	Data string        `required:""`
}

// service is what every service is.
type service interface {
	Start(ctx context.Context) error
}

// Run serves what waybill up serves.
func (c *serveMeshCommand) Run(ctx context.Context) error {
	s, err := natsserver.Start(ctx, natsserver.Options{DataDir: c.Data, Port: -1, SyncInterval: c.Sync})
	if err != nil {
		return err
	}
	o := mesh.ConnectOptions{URL: s.URL()}
	for _, create := range []func() (service, error){
		func() (service, error) { return registry.New(registry.Options{Mesh: o}) },
		func() (service, error) { return retry.New(retry.Options{Mesh: o}) },
		func() (service, error) { return dlq.New(dlq.Options{Mesh: o}) },
		func() (service, error) { return router.New(router.Options{Mesh: o}) },
	} {
		s, err := create()
		if err != nil {
			return err
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
	}
	return obey(s.URL(), os.Stdin, os.Stdout)
}
