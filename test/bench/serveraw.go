package main

import (
	"context"
	"os"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/natsserver"
)

type serveRawCommand struct {
	Sync up.Sync `help:"When what is answered is on the disk."`
	Data string  `required:""`
}

// Run serves NATS with JetStream as the mesh embeds it, and nothing else.
func (c *serveRawCommand) Run(ctx context.Context) error {
	s, err := natsserver.Start(ctx, natsserver.Options{DataDir: c.Data, Port: -1, SyncInterval: time.Duration(c.Sync)})
	if err != nil {
		return err
	}
	return obey(s.URL(), os.Stdin, os.Stdout)
}
