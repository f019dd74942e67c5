// Command waybill-registry knows the workers of a mesh, and what they declared.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/services/registry"
)

var version = "dev" // set by the build

type flags struct {
	NATS  string        `default:"nats://127.0.0.1:4222" env:"WAYBILL_NATS" help:"URL of NATS."`
	Name  string        `help:"Name of this instance. Default: a random one."`
	Drain time.Duration `default:"10s" help:"How long a shutdown may take."`

	Version kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-registry"), kong.Description("Knows the workers of a mesh, and what they declared."), kong.Vars{"version": version})
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, "waybill-registry:", err)
		os.Exit(1)
	}
}

func run(f flags) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	service, err := registry.New(registry.Options{
		Mesh: mesh.ConnectOptions{URL: f.NATS}, Instance: f.Name, Version: version,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := service.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.Drain)
	defer cancel()
	return service.Stop(bounded)
}
