package harness

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
)

// Mesh is `waybill up` as a process of its own.
type Mesh struct {
	Data string // its data directory
	URL  string // of its NATS, the same after a restart
	HTTP string // of its gateway, likewise

	t       testing.TB
	args    []string
	process *Process
	nc      *nats.Conn
	copies  func(service string) int // how many instances answer; nil: one of each
}

var (
	natsURL = regexp.MustCompile(`nats://127\.0\.0\.1:\d+`)
	httpURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
)

// Start starts a mesh on a fresh data directory and free ports, with further
// arguments of `waybill up`, and returns when it is ready. The mesh ends with
// the test.
func Start(t testing.TB, args ...string) *Mesh {
	t.Helper()
	return StartOn(t, filepath.Join(t.TempDir(), "data"), args...)
}

// StartOn is Start on a data directory of the test's choice.
func StartOn(t testing.TB, data string, args ...string) *Mesh {
	t.Helper()
	m := &Mesh{Data: data, t: t, args: args}
	m.start("127.0.0.1:0", "127.0.0.1:0")
	m.connect()
	return m
}

// show tells what the mesh holds and has counted, if its test has failed.
func (m *Mesh) show() {
	if !m.t.Failed() || m.URL == "" || m.process.Ended() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, what := range []string{"queue", "broker"} {
		cmd := exec.CommandContext(ctx, Binary(m.t), what, "ls", "--json")
		cmd.Env = environment("WAYBILL_NATS=" + m.URL)
		said, err := cmd.CombinedOutput()
		m.t.Logf("in the end, %s ls says (%v):\n%s", what, err, said[:min(len(said), keepOutput)])
	}
}

// Up runs `waybill up` on a data directory and free ports, and does not expect
// it to become a mesh.
func Up(t testing.TB, data string, args ...string) *Process {
	t.Helper()
	return up(t, data, "127.0.0.1:0", "127.0.0.1:0", args)
}

func up(t testing.TB, data, listen, web string, args []string) *Process {
	t.Helper()
	cmd := exec.Command(Binary(t), slices.Concat([]string{"up", "--data", data, "--listen", listen, "--http", web}, args)...)
	return spawn(t, "waybill up", cmd, nil)
}

func (m *Mesh) start(listen, web string) {
	m.t.Helper()
	m.process = up(m.t, m.Data, listen, web, m.args)
	m.t.Cleanup(m.show)
	m.URL = m.process.Printed(natsURL)[0]
	m.HTTP = m.process.Printed(httpURL)[0]
	Await(m.t, "the mesh is ready", func() bool {
		if m.process.Ended() {
			m.t.Fatalf("waybill up ended (%v):\n%s", m.process.cmd.ProcessState, m.process.Output())
		}
		return m.Ready()
	})
}

// Ready says whether the mesh says that it is.
func (m *Mesh) Ready() bool {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.HTTP+"/readyz", http.NoBody)
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := web.Do(request)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// web keeps no connection that a later test would count as left behind.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Kill ends the whole process with SIGKILL.
func (m *Mesh) Kill() { m.process.Kill() }

// Terminate sends SIGTERM and does not wait.
func (m *Mesh) Terminate() { m.process.Terminate() }

// Exit waits for the mesh's end, at most that long, and returns its exit code.
func (m *Mesh) Exit(within time.Duration) int {
	m.t.Helper()
	return m.process.Exit(within)
}

// Process is the running mesh's process.
func (m *Mesh) Process() *Process { return m.process }

// Restart starts the mesh, which ends or has ended, on the same data and ports,
// and returns when it is ready.
func (m *Mesh) Restart() {
	m.t.Helper()
	m.Exit(Guard)
	m.start(strings.TrimPrefix(m.URL, "nats://"), strings.TrimPrefix(m.HTTP, "http://"))
}

// Stumble starts the mesh, which ends or has ended, and kills it after that
// long, at whatever it does then.
func (m *Mesh) Stumble(after time.Duration) {
	m.t.Helper()
	m.Exit(Guard)
	m.process = up(m.t, m.Data, strings.TrimPrefix(m.URL, "nats://"), strings.TrimPrefix(m.HTTP, "http://"), m.args)
	Wait(m.t, after)
	m.process.Kill()
}

// RestartWith is Restart with other arguments than the first ones.
func (m *Mesh) RestartWith(args ...string) {
	m.t.Helper()
	m.args = args
	m.Restart()
}

// connect makes the operator's connection, which outlives restarts.
func (m *Mesh) connect() {
	m.t.Helper()
	var err error
	if m.nc, err = nats.Connect(m.URL, nats.Name("operator"), nats.Timeout(Guard), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1)); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(m.nc.Close)
}

// Connect connects a client that is closed when the test ends. Its log is
// shown if the test fails.
func (m *Mesh) Connect(opts ...client.Option) *client.Client {
	m.t.Helper()
	return Connect(m.t, m.URL, opts...)
}

// Connect connects a client, perhaps through a Proxy, that is closed when the
// test ends. It is given no time to drain then.
func Connect(t testing.TB, url string, opts ...client.Option) *client.Client {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c, err := client.Connect(t.Context(), url, append([]client.Option{client.Logger(log), client.DrainWindow(0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

// Command is what a command of the CLI said.
type Command struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command of the CLI against the mesh.
func (m *Mesh) Run(args ...string) Command {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), Guard)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(m.t), args...)
	cmd.Env = environment("WAYBILL_NATS=" + m.URL)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		m.t.Fatalf("waybill %v: %v", args, err)
	}
	return Command{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// For is the mesh as a subtest uses it, so that what fails there fails there.
func (m *Mesh) For(t testing.TB) *Mesh {
	other := *m
	other.t = t
	return &other
}

// Spawn starts a command of the CLI that runs until the test ends.
func (m *Mesh) Spawn(args ...string) *Process {
	m.t.Helper()
	cmd := exec.Command(Binary(m.t), args...)
	cmd.Env = environment("WAYBILL_NATS=" + m.URL)
	return spawn(m.t, "waybill "+args[0], cmd, nil)
}
