// Command waybill-registry knows the workers of a mesh, and what they declared.
package main

import (
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/services/registry"
)

var version = "dev" // set by the build

type flags struct {
	daemon.Flags
	daemon.Stored
	Version kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-registry"), kong.Description("Knows the workers of a mesh, and what they declared."), kong.Vars{"version": version})
	os.Exit(daemon.Run("registry", version, &f.Flags, os.Stderr, f.service))
}

func (f *flags) service(log *slog.Logger) (daemon.Service, error) {
	return registry.New(registry.Options{
		Mesh: f.Connect(), Instance: f.Name, Version: version, Logger: log,
		Replicas: f.Replicas,
	})
}
