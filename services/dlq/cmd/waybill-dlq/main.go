// Command waybill-dlq holds dead letters until they are redriven or discarded.
package main

import (
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/services/dlq"
)

var version = "dev" // set by the build

type flags struct {
	daemon.Flags
	daemon.Ledgers
	Version kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-dlq"), kong.Description("Holds dead letters until they are redriven or discarded."), kong.Vars{"version": version})
	os.Exit(daemon.Run("dlq", version, &f.Flags, os.Stderr, f.service))
}

func (f *flags) service(log *slog.Logger) (daemon.Service, error) {
	return dlq.New(dlq.Options{
		Mesh: f.Connect(), Instance: f.Name, Version: version, Logger: log,
		Replicas: f.Replicas, AcceptLoss: f.AcceptLoss,
	})
}
