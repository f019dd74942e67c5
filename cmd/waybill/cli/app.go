package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// connectTimeout bounds how long a command looks for the mesh, askTimeout how
// long for an answer.
const (
	connectTimeout = 3 * time.Second
	askTimeout     = 30 * time.Second
)

// app is what every command has at hand.
type app struct {
	ctx     context.Context // ends at the first signal
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	version string
	flags   *globals
	rests   bool // the mesh is stopped: there is its configuration alone
}

// log is the program's log, on stderr.
func (a *app) log(level slog.Level) *slog.Logger {
	if isTerminal(a.stderr) {
		return slog.New(tint.NewTextHandler(a.stderr, &tint.Options{Level: level, TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
}

// sayf writes a line for people; with --json stdout is for machines alone.
func (a *app) sayf(format string, args ...any) {
	w := a.stdout
	if a.flags.JSON {
		w = a.stderr
	}
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

// hintf writes a line beside the output, which machines do not read.
func (a *app) hintf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, format+"\n", args...)
}

// show writes a value as JSON with --json, else as people is.
func (a *app) show(value any, people func()) error {
	if !a.flags.JSON {
		people()
		return nil
	}
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// connect connects to the mesh's NATS for an operator's request.
func (a *app) connect() (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(a.ctx, connectTimeout)
	defer cancel()
	nc, err := mesh.Connect(ctx, mesh.ConnectOptions{URL: a.flags.NATS, Name: "waybill-cli"})
	if err != nil {
		return nil, startOne(err)
	}
	return nc, nil
}

// unreachable adds what to do next to the error of a mesh that is not there.
func unreachable(err error) error {
	if !mesh.IsNobody(err) {
		return err
	}
	return startOne(err)
}

func startOne(err error) error {
	if protocol.CodeOf(err) != protocol.CodeUnavailable {
		return err
	}
	return protocol.Errorf(protocol.CodeUnavailable, "%s\n  next: start a mesh with `waybill up`, or name another with --nats or WAYBILL_NATS", protocol.AsError(err).Message)
}

// client connects as a program would.
func (a *app) client(opts ...client.Option) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(a.ctx, connectTimeout)
	defer cancel()
	return client.Connect(ctx, a.flags.NATS, append(opts, client.Logger(slog.New(plain{a: a})))...)
}

// ask is one request to a service.
func ask[R any](a *app, subject string, q any) (R, error) {
	return askWithin[R](a, askTimeout, subject, q)
}

// askWithin is ask with another time for the answer.
func askWithin[R any](a *app, within time.Duration, subject string, q any) (R, error) {
	answer, err := operatedWithin(a, within, func(ctx context.Context, nc *nats.Conn) (R, error) {
		return mesh.Request[R](ctx, nc, subject, q)
	})
	return answer, unreachable(err)
}

// operated asks several services, or one more than once.
func operated[R any](a *app, do func(ctx context.Context, nc *nats.Conn) (R, error)) (R, error) {
	return operatedWithin(a, askTimeout, do)
}

// operatedWithin is operated with another time for the answer.
func operatedWithin[R any](a *app, within time.Duration, do func(ctx context.Context, nc *nats.Conn) (R, error)) (R, error) {
	var none R
	nc, err := a.connect()
	if err != nil {
		return none, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(a.ctx, within)
	defer cancel()
	return do(ctx, nc)
}

// isTerminal says whether people read what is written there.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
