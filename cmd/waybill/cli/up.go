package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/daemon"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type upCmd struct {
	Data                  string        `help:"Directory that holds everything; it belongs to one process. Default ./waybill-data." placeholder:"DIR" type:"path"`
	Listen                string        `help:"Where NATS listens; port 0 takes a free one. Default 127.0.0.1:4222." placeholder:"HOST:PORT"`
	HTTP                  string        `name:"http" help:"Where HTTP is served: the API, its description at /docs/, health and metrics; port 0 takes a free one. Default 127.0.0.1:8000." placeholder:"HOST:PORT"`
	Config                string        `help:"YAML file with these and more settings; flags win. What it says of the mesh itself is for one that has no configuration yet: what is stored wins, and is changed with waybill config apply." placeholder:"FILE" type:"path"`
	Sync                  string        `help:"When a publish is on disk: always (before it is answered), or the time between two fsyncs, such as 2m. Default always." placeholder:"always|DURATION"`
	DrainTimeout          time.Duration `help:"How long a shutdown may take. Default 10s." placeholder:"DURATION"`
	ActivationTimeoutMs   *int64        `help:"Set the time limit of a delivery to an observer without one of its own, in milliseconds. The mesh keeps it; 30000 where it was never set." placeholder:"MS"`
	ObserverGraceMs       *int64        `help:"Set how long an observer's id is kept for a worker that is gone, in milliseconds. The mesh keeps it; 30000 where it was never set." placeholder:"MS"`
	SubscriberRetentionMs *int64        `help:"Set how long the queue of an observer that is gone receives its topic, in milliseconds. The mesh keeps it; 30000 where it was never set." placeholder:"MS"`
	WebhookSecrets        string        `help:"Directory with the files that webhooks name for their secrets, which are then not stored in the mesh." placeholder:"DIR" type:"path"`
	AcceptLoss            bool          `help:"Start on a damaged store without what cannot be read."`
	LogLevel              slog.Level    `default:"warn" help:"Least level that is logged: debug, info, warn, error."`
}

func (c *upCmd) Run(a *app) error {
	o, err := c.options(a)
	if err != nil {
		return err
	}
	m, err := up.Start(a.ctx, o)
	if err != nil {
		return started(a, "up", err)
	}
	if err := a.show(placeOf(a, m), func() { announce(a, m) }); err != nil {
		return errors.Join(err, m.Stop(context.Background()))
	}
	defer daemon.SpareMemory()()
	select {
	case <-a.ctx.Done():
		a.hintf("stopping; a second signal ends it at once")
	case <-m.Failed():
		a.hintf("%v", m.Err())
	}
	if err := m.Stop(context.Background()); err != nil {
		return err
	}
	return m.Err()
}

var errToldToStop = errors.New("told to stop before it was up")

// started is why what a command starts is not up.
func started(a *app, command string, err error) error {
	if a.ctx.Err() != nil {
		return errToldToStop
	}
	_, store := errors.AsType[*natsserver.StoreError](err)
	_, log := errors.AsType[*ledger.DamageError](err)
	if store || log {
		return fmt.Errorf("%w\n  next: restore the data directory from a backup, or go on without what cannot be read: waybill %s --accept-loss", err, command)
	}
	return err
}

// options are the defaults, then the file's, then the environment's, then the
// flags'.
func (c *upCmd) options(a *app) (up.Options, error) {
	o := up.Options{Version: a.version, Logger: a.log(c.LogLevel), AcceptLoss: c.AcceptLoss}
	o.Change = config.SettingsDocument(protocol.SettingsChange{
		Observers: protocol.ObserverSettingsChange{
			ActivationTimeoutMs: c.ActivationTimeoutMs, ObserverGraceMs: c.ObserverGraceMs,
		},
		SubscriberRetentionMs: c.SubscriberRetentionMs,
	})
	warnings, err := up.ReadConfig(c.Config, &o)
	if err != nil {
		return o, err
	}
	for _, text := range warnings {
		a.hintf("%s", text)
	}
	override(&o.Data, c.Data)
	override(&o.Listen, c.Listen)
	override(&o.HTTP, c.HTTP)
	override(&o.WebhookSecrets, c.WebhookSecrets)
	override(&o.Drain, c.DrainTimeout)
	if c.DrainTimeout < 0 {
		return o, protocol.Errorf(protocol.CodeInvalidArgs, "--drain-timeout is %v: it is above 0", c.DrainTimeout)
	}
	if c.Sync == "" {
		return o, nil
	}
	o.Sync, err = up.ParseSync(c.Sync)
	return o, err
}

// override sets what was given.
func override[T comparable](target *T, value T) {
	var zero T
	if value != zero {
		*target = value
	}
}

// place is where a mesh is, for machines.
type place struct {
	Version    string `json:"version"`
	NATS       string `json:"nats"`
	HTTP       string `json:"http"`
	Data       string `json:"data"`
	Durability string `json:"durability"`
}

func placeOf(a *app, m *up.Mesh) place {
	return place{Version: a.version, NATS: m.NATS(), HTTP: m.HTTP(), Data: m.Data(), Durability: m.Durability()}
}

func announce(a *app, m *up.Mesh) {
	a.sayf("waybill %s is up: NATS %s, HTTP %s, data in %s", a.version, m.NATS(), m.HTTP(), m.Data())
	a.sayf("%s; look with `%s`, %s/readyz and %s/metrics", m.Durability(), command(m.NATS(), "queue ls"), m.HTTP(), m.HTTP())
}

// command is a waybill command as it can be typed here, with --nats where it is
// needed.
func command(nats, rest string) string {
	program := "waybill"
	if _, err := exec.LookPath(program); err != nil {
		program = os.Args[0]
	}
	if nats == "nats://"+up.DefaultListen {
		return program + " " + rest
	}
	return program + " --nats " + nats + " " + rest
}
