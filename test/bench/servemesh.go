package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/internal/telemetry"
)

type serveMeshCommand struct {
	Sync    up.Sync `help:"When what is answered is on the disk."`
	Data    string  `required:""`
	Adapter string  `help:"The broker that has the queues, and the key of its configuration for where it is, as in: rabbitmq amqp_url; with a space alone behind it, the whole of it is where it is. Default: none."`
	At      string  `help:"Where that broker is."`
}

// Run serves what waybill up serves.
func (c *serveMeshCommand) Run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	flush, err := telemetry.Start(ctx, "waybill", "", version, log)
	if err != nil {
		return err
	}
	defer flush()
	o := up.Options{Data: c.Data, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Sync: c.Sync, Version: version, Logger: log}
	if name, key, chosen := strings.Cut(c.Adapter, " "); chosen {
		of := map[string]any{key: c.At}
		if key == "" {
			if err := json.Unmarshal([]byte(c.At), &of); err != nil {
				return err
			}
			delete(of, "")
		}
		o.Change = config.Document{"adapter": map[string]any{"name": name, "config": of}}
	}
	mesh, err := up.Start(ctx, o)
	if err != nil {
		return err
	}
	defer daemon.SpareMemory()() // as waybill up does
	return obey(mesh.NATS(), os.Stdin, os.Stdout)
}
