// Command waybill-gateway serves a mesh over HTTP: publishing, operating, health
// and metrics; and calls webhooks.
package main

import (
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/services/gateway"
)

var version = "dev" // set by the build

type flags struct {
	daemon.Flags
	HTTP           string           `name:"http" default:"127.0.0.1:8000" help:"Address to serve HTTP on; port 0 is any free one." placeholder:"HOST:PORT"`
	WebhookSecrets string           `help:"Directory with the files that webhooks name for their secrets, which are then not stored in the mesh." placeholder:"DIR" type:"path"`
	Version        kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-gateway"), kong.Description("Serves a mesh over HTTP: publishing, operating, health and metrics; and calls webhooks."), kong.Vars{"version": version})
	os.Exit(daemon.Run("gateway", version, &f.Flags, os.Stderr, f.service))
}

func (f *flags) service(log *slog.Logger) (daemon.Service, error) {
	return gateway.New(gateway.Options{
		Mesh: f.Connect(), Instance: f.Name, Version: version, Logger: log,
		Listen: f.HTTP, WebhookSecrets: f.WebhookSecrets,
	})
}
