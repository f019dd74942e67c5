// Command waybill-gateway serves a mesh over HTTP: its health and its metrics.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/services/gateway"
)

var version = "dev" // set by the build

type flags struct {
	NATS    string           `default:"nats://127.0.0.1:4222" env:"WAYBILL_NATS" help:"URL of NATS."`
	HTTP    string           `default:"127.0.0.1:8000" help:"Address to serve HTTP on; port 0 is any free one."`
	Name    string           `help:"Name of this instance. Default: a random one."`
	Drain   time.Duration    `default:"10s" help:"How long a shutdown may take."`
	Version kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-gateway"), kong.Description("Serves a mesh over HTTP: its health and its metrics."), kong.Vars{"version": version})
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, "waybill-gateway:", err)
		os.Exit(1)
	}
}

func run(f flags) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	service, err := gateway.New(gateway.Options{
		Mesh: mesh.ConnectOptions{URL: f.NATS}, Instance: f.Name, Version: version, Listen: f.HTTP,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := service.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-service.Done(): // it cannot serve any more
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.Drain)
	defer cancel()
	return errors.Join(service.Stop(bounded), service.Err())
}
