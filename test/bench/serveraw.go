package main

import (
	"context"
	"os"
	"time"

	"github.com/waybill-mq/waybill/internal/natsserver"
)

type serveRawCommand struct {
	Sync time.Duration `help:"Time between fsyncs; 0: before each answer."`
	Data string        `required:""`
}

// Run serves NATS with JetStream as the mesh embeds it, and nothing else.
func (c *serveRawCommand) Run(ctx context.Context) error {
	s, err := natsserver.Start(ctx, natsserver.Options{DataDir: c.Data, Port: -1, SyncInterval: c.Sync})
	if err != nil {
		return err
	}
	return obey(s.URL(), os.Stdin, os.Stdout)
}
