package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/demo"
	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// demoTimeout is a guard: the demo takes seconds.
const demoTimeout = 2 * time.Minute

type demoCmd struct {
	Dirs []string `arg:"" optional:"" name:"dir" help:"Directories with Go sources, one execution each. Default two of the Go toolchain's own."`
	Once bool     `help:"End after the report instead of serving until Ctrl-C."`
}

// Run starts a mesh on a fresh directory and free ports, and sends the
// directories through it.
func (c *demoCmd) Run(a *app) (err error) {
	trees := c.Dirs
	if len(trees) == 0 {
		if trees, err = demo.DefaultTrees(a.ctx); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "waybill-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := up.Start(a.ctx, up.Options{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Version: a.version, Logger: a.log(slog.LevelWarn),
	})
	if err != nil {
		return started(a, "up", err)
	}
	defer func() { err = errors.Join(err, m.Stop(context.Background())) }()
	a.flags.NATS = m.NATS() // the commands it shows and asks are for this mesh
	announce(a, m)
	return c.send(a, m, trees, filepath.Join(dir, "store"))
}

func (c *demoCmd) send(a *app, m *up.Mesh, trees []string, store string) (err error) {
	run, err := demo.Start(a.ctx, demo.Options{
		NATS: m.NATS(), Trees: trees, Store: store, Logger: a.log(slog.LevelWarn),
		Queues: func(execution string) ([]protocol.QueueInfo, error) {
			page, err := queues(a, execution)
			return page.Queues, err
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close(context.Background())) }()
	a.sayf("\nfinding, parsing and storing the Go files of %d directories, each as an execution of its own …", len(trees))
	began := time.Now()
	ctx, cancel := context.WithTimeout(a.ctx, demoTimeout)
	defer cancel()
	executions, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	a.sayf("done in %v\n", time.Since(began).Round(10*time.Millisecond))
	if err := c.report(a, executions); err != nil || c.Once {
		return err
	}
	return serve(a, m)
}

// report says what became of the messages; an error if it is not what the
// direct walk foretold.
func (c *demoCmd) report(a *app, executions []*demo.Execution) error {
	letters, err := deadLetters(a, executions)
	if err != nil {
		return err
	}
	if a.flags.JSON {
		err = a.show(executions, nil)
	} else {
		totals(a, executions)
		graves(a, letters)
	}
	for _, e := range executions {
		if !e.Agrees() {
			return errors.Join(err, fmt.Errorf("%w: execution %s came to %+v, the walk to %+v", errDiffers, e.ID, e.Got, e.Want))
		}
	}
	return err
}

func totals(a *app, executions []*demo.Execution) {
	g := newGrid("EXECUTION", "PUBLISHED", "ACKNOWLEDGED", "RETRIED", "DEAD-LETTERED", "DIRECTORY")
	for _, e := range executions {
		g.row(e.ID, e.Got.Published, e.Got.Acknowledged, e.Got.Retried, e.Got.DeadLettered, e.Tree)
	}
	g.write(a.stdout)
	a.sayf("")
	for _, e := range executions {
		if e.Agrees() {
			a.sayf("%s: a direct walk agrees: %d files stored with %d functions, and every number above", e.ID, e.Want.Files, e.Want.Functions)
		} else {
			a.sayf("%s: DIFFERS from the direct walk, which foretold %+v", e.ID, e.Want)
		}
	}
}

// deadLetters are some dead letters of each execution.
func deadLetters(a *app, executions []*demo.Execution) ([]protocol.DeadLetter, error) {
	var letters []protocol.DeadLetter
	for _, e := range executions {
		for _, route := range []string{"parse", "store"} {
			name, err := operate.QueueName(e.ID + "/" + route)
			if err != nil {
				return nil, err
			}
			page, err := ask[protocol.DeadPage](a, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: name, Limit: 3})
			if err != nil {
				return nil, err
			}
			letters = append(letters, page.Letters...)
		}
	}
	return letters, nil
}

func graves(a *app, letters []protocol.DeadLetter) {
	if len(letters) == 0 {
		return
	}
	a.sayf("\nsome of the dead letters; %s lists all", command(a.flags.NATS, "dlq ls"))
	g := newGrid("ID", "QUEUE", "ATTEMPTS", "REASON", "ERROR")
	redrive := letters[0]
	for _, l := range letters {
		g.row(l.MessageID, l.Queue, l.Attempts, l.Reason, short(filepath.Base(l.Error), 60))
		if l.Reason == protocol.ReasonFailed {
			redrive = l // the store takes it at the second asking
		}
	}
	g.write(a.stdout)
	a.sayf("\nsend one back, with all its tries anew:\n  %s", command(a.flags.NATS, "dlq redrive "+redrive.MessageID))
}

// serve keeps the mesh and the demo's workers going.
func serve(a *app, m *up.Mesh) error {
	a.sayf("\nstill serving, until Ctrl-C; look around from another terminal:")
	for _, rest := range []string{"queue ls", "subscription ls", "dlq ls", "stats"} {
		a.sayf("  %s", command(a.flags.NATS, rest))
	}
	a.sayf("  curl %s/readyz\n  curl %s/metrics", m.HTTP(), m.HTTP())
	select {
	case <-a.ctx.Done():
		a.hintf("stopping; a second signal ends it at once")
		return nil
	case <-m.Failed():
		return m.Err()
	}
}
