// Command waybill-registry knows the workers of a mesh, and what they declared,
// and keeps its configuration.
package main

import (
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

var version = "dev" // set by the build

type flags struct {
	daemon.Flags
	daemon.Stored
	Config                string           `help:"YAML file with the mesh's configuration, for a mesh that has none yet: what is stored wins, and is changed with waybill config apply." placeholder:"FILE" type:"path"`
	ActivationTimeoutMs   *int64           `help:"Set the time limit of a delivery to an observer without one of its own, in milliseconds; 30000 where it was never set." placeholder:"MS"`
	ObserverGraceMs       *int64           `help:"Set how long an observer's id is kept for a worker that is gone, in milliseconds; 30000 where it was never set." placeholder:"MS"`
	SubscriberRetentionMs *int64           `help:"Set how long the queue of an observer that is gone receives its topic, in milliseconds; 30000 where it was never set." placeholder:"MS"`
	Version               kong.VersionFlag `help:"Print the version."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("waybill-registry"), kong.Description("Knows the workers of a mesh, and what they declared, and keeps its configuration."), kong.Vars{"version": version})
	os.Exit(daemon.Run("registry", version, &f.Flags, os.Stderr, f.service))
}

func (f *flags) service(log *slog.Logger) (daemon.Service, error) {
	sources, err := config.Read(f.Config, nil, config.SettingsDocument(protocol.SettingsChange{
		Observers: protocol.ObserverSettingsChange{
			ActivationTimeoutMs: f.ActivationTimeoutMs, ObserverGraceMs: f.ObserverGraceMs,
		},
		SubscriberRetentionMs: f.SubscriberRetentionMs,
	}))
	if err != nil {
		return nil, err
	}
	for _, text := range sources.Warnings {
		log.Warn("of the configuration: something has no effect", "what", text)
	}
	return registry.New(registry.Options{
		Mesh: f.Connect(), Instance: f.Name, Version: version, Logger: log,
		Replicas: f.Replicas, Config: registry.ConfigOptions{Seed: sources.Seed, Change: sources.Change},
	})
}
