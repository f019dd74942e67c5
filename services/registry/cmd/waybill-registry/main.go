// Command waybill-registry knows the workers of a mesh, and what they declared.
package main

import (
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

var version = "dev" // set by the build

type flags struct {
	daemon.Flags
	daemon.Stored
	ActivationTimeoutMs   *int64           `help:"Set the time limit of a delivery to an observer without one of its own, in milliseconds; 30000 where it was never set." placeholder:"MS"`
	ObserverGraceMs       *int64           `help:"Set how long an observer's id is kept for a worker that is gone, in milliseconds; 30000 where it was never set." placeholder:"MS"`
	SubscriberRetentionMs *int64           `help:"Set how long the queue of an observer that is gone receives its topic, in milliseconds; 30000 where it was never set." placeholder:"MS"`
	Version               kong.VersionFlag `help:"Print the version."`
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
		Settings: protocol.SettingsChange{
			Observers: protocol.ObserverSettingsChange{
				ActivationTimeoutMs: f.ActivationTimeoutMs, ObserverGraceMs: f.ObserverGraceMs,
			},
			SubscriberRetentionMs: f.SubscriberRetentionMs,
		},
	})
}
