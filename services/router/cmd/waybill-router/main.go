// Command waybill-router takes publishes, delivers messages to workers and settles them.
package main

import (
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

var version = "dev" // set by the build

type flags struct {
	daemon.Flags
	daemon.Ledgers
	Durability string           `default:"auto" enum:"auto,fsync,interval,replicated,memory,none" help:"What publish answers say of the disk. NATS does not tell when it syncs, so auto says replicated for more than one copy, else interval: set fsync for a NATS that runs with sync always, as waybill nats does."`
	MaxPayload int              `default:"1048576" help:"Largest payload in bytes; less if NATS carries less." placeholder:"BYTES"`
	Limit      limits           `embed:"" prefix:"limit-"`
	Version    kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-router"), kong.Description("Takes publishes, delivers messages to workers and settles them."), kong.Vars{"version": version})
	os.Exit(daemon.Run("router", version, &f.Flags, os.Stderr, f.service))
}

func (f *flags) service(log *slog.Logger) (daemon.Service, error) {
	return router.New(router.Options{
		Mesh: f.Connect(), Instance: f.Name, Version: version, Logger: log,
		Configured: true, Replicas: f.Replicas, AcceptLoss: f.AcceptLoss,
		Drain: f.Drain, MaxPayload: f.MaxPayload, Durability: f.durability(), Limits: router.Limits(f.Limit),
	})
}

type limits struct {
	QueueMessages int64 `help:"Messages in one queue, beyond which publishes to it are refused." placeholder:"N"`
	QueueBytes    int64 `help:"Bytes in one queue." placeholder:"N"`
	TotalMessages int64 `help:"Messages in the whole mesh." placeholder:"N"`
	TotalBytes    int64 `help:"Bytes in the whole mesh." placeholder:"N"`
}

// durability is as much as can be said of a NATS that does not tell.
func (f *flags) durability() string {
	switch {
	case f.Durability != "auto":
		return f.Durability
	case f.Replicas > 1:
		return protocol.DurabilityReplicated
	default:
		return protocol.DurabilityInterval
	}
}
