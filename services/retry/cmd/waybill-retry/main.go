// Command waybill-retry holds messages that wait for their next attempt, and says when that is.
package main

import (
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/services/retry"
)

var version = "dev" // set by the build

type flags struct {
	daemon.Flags
	daemon.Ledgers
	Version kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-retry"), kong.Description("Holds messages that wait for their next attempt, and says when that is."), kong.Vars{"version": version})
	os.Exit(daemon.Run("retry", version, &f.Flags, os.Stderr, f.service))
}

func (f *flags) service(log *slog.Logger) (daemon.Service, error) {
	return retry.New(retry.Options{
		Mesh: f.Connect(), Instance: f.Name, Version: version, Logger: log,
		Replicas: f.Replicas, AcceptLoss: f.AcceptLoss,
	})
}
