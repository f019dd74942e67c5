// Command waybill-router takes publishes, delivers messages to workers and settles them.
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
	"github.com/waybill-mq/waybill/services/router"
)

var version = "dev" // set by the build

type flags struct {
	NATS  string        `default:"nats://127.0.0.1:4222" env:"WAYBILL_NATS" help:"URL of NATS."`
	Name  string        `help:"Name of this instance, stable over its restarts. Default: a random one."`
	Drain time.Duration `default:"10s" help:"How long a shutdown waits for handlers that run; they go on if it takes longer."`

	Version kong.VersionFlag `help:"Print the version."`
}

// committing is what a shutdown may take beyond the drain.
const committing = 10 * time.Second

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-router"), kong.Description("Takes publishes, delivers messages to workers and settles them."), kong.Vars{"version": version})
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, "waybill-router:", err)
		os.Exit(1)
	}
}

func run(f flags) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	service, err := router.New(router.Options{
		Mesh: mesh.ConnectOptions{URL: f.NATS}, Instance: f.Name, Version: version, Drain: f.Drain,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := service.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.Drain+committing)
	defer cancel()
	return service.Stop(bounded)
}
