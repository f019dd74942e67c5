// Package daemon is what the programs of the single services share: their
// flags, and a run from the first look at NATS to the last commit.
package daemon

import (
	"io"
	"log/slog"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Flags are every service's, with the tags of kong.
type Flags struct {
	NATS     string        `name:"nats" default:"nats://127.0.0.1:4222" env:"WAYBILL_NATS" help:"URLs of NATS, separated by commas." placeholder:"URL"`
	Wait     time.Duration `default:"5s" help:"How long to look for NATS at the start, before giving up. A connection that is lost later is looked for until it is back." placeholder:"DURATION"`
	Name     string        `env:"WAYBILL_NAME" help:"Name of this instance: its own among those that run at a time, and the same when it starts again. Default: a random one." placeholder:"NAME"`
	Drain    time.Duration `default:"10s" help:"How long a shutdown waits for what is under way." placeholder:"DURATION"`
	Check    bool          `help:"Start nothing: ask the instance of this name that runs, or any if no name is given, whether it is ready. The exit code is 0 if it is; else 1, with what it waits for."`
	Log      string        `default:"text" enum:"text,json" help:"How the log is written, on stderr: text or json."`
	LogLevel slog.Level    `default:"info" help:"Least level that is logged: debug, info, warn, error."`
}

// Stored are the flags of services that keep something in NATS.
type Stored struct {
	Replicas int `default:"1" help:"Copies that NATS keeps of what is stored, over as many of its servers; it is settled at the first start." placeholder:"N"`
}

// Ledgers are the flags of services with ledgers.
type Ledgers struct {
	Stored
	AcceptLoss bool `help:"Go on with a damaged log without what cannot be read."`
}

// Connect says how NATS is reached.
func (f *Flags) Connect() mesh.ConnectOptions {
	return mesh.ConnectOptions{URL: f.NATS, Patience: f.Wait}
}

func (f *Flags) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.LogLevel}
	if f.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func (f *Flags) check() error {
	if f.Wait <= 0 || f.Drain <= 0 {
		return protocol.Errorf(protocol.CodeInvalidArgs, "--wait and --drain are times above 0; they are %v and %v", f.Wait, f.Drain)
	}
	return nil
}
