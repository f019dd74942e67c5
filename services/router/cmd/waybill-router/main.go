// Command waybill-router runs one router against a NATS that is there already.
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

var version = "0.0.0-dev"

func main() { os.Exit(run()) }

type flags struct {
	NATS  string        `name:"nats" default:"nats://127.0.0.1:4222" env:"WAYBILL_NATS" help:"NATS to connect to."`
	Name  string        `name:"name" help:"Name of this instance; a router that starts again under its name has its lanes back at once."`
	Drain time.Duration `name:"drain" default:"10s" help:"How long to wait at shutdown for handlers that run."`
}

func run() int {
	var f flags
	kong.Parse(&f, kong.Name("waybill-router"), kong.Description("Takes publishes, delivers messages to workers and settles them."))
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := router.New(router.Options{
		Mesh: mesh.ConnectOptions{URL: f.NATS}, Instance: f.Name, Version: version, Logger: log, Drain: f.Drain,
	})
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "waybill-router:", err)
		return 1
	}
	<-ctx.Done()
	stop()
	ending, cancel := context.WithTimeout(context.Background(), f.Drain+15*time.Second)
	defer cancel()
	if err := s.Stop(ending); err != nil {
		fmt.Fprintln(os.Stderr, "waybill-router:", err)
		return 1
	}
	return 0
}
