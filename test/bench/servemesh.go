package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/telemetry"
)

type serveMeshCommand struct {
	Sync up.Sync `help:"When what is answered is on the disk."`
	Data string  `required:""`
}

// Run serves what waybill up serves.
func (c *serveMeshCommand) Run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	flush, err := telemetry.Start(ctx, "waybill", "", version, log)
	if err != nil {
		return err
	}
	defer flush()
	mesh, err := up.Start(ctx, up.Options{Data: c.Data, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Sync: c.Sync, Version: version, Logger: log})
	if err != nil {
		return err
	}
	return obey(mesh.NATS(), os.Stdin, os.Stdout)
}
