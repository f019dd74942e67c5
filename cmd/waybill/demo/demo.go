// Package demo sends real input through a mesh: two executions of one pipeline
// at the same time, each over a directory of Go sources.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Options of Start.
type Options struct {
	NATS string
	// Trees are the directories, one for each execution.
	Trees []string
	// Store is where results go.
	Store  string
	Logger *slog.Logger
	// Queues reads the mesh's queues of an execution.
	Queues func(execution string) ([]protocol.QueueInfo, error)
}

// Run is a running demo: its workers go on until Close.
type Run struct {
	o          Options
	executions []*Execution
}

// Execution is one run of the pipeline over a tree.
type Execution struct {
	ID   string `json:"execution"`
	Tree string `json:"directory"`
	// Got is what the mesh and the store say, Want what a direct walk does.
	Got  Totals `json:"got"`
	Want Totals `json:"want"`

	pipeline *pipeline
}

// Agrees says whether the mesh did what the walk foretold.
func (e *Execution) Agrees() bool { return e.Got == e.Want }

// Start registers the workers of each execution and sends its directory in.
func Start(ctx context.Context, o Options) (*Run, error) {
	r := &Run{o: o}
	for i, tree := range o.Trees {
		if err := r.start(ctx, i, tree); err != nil {
			return nil, errors.Join(err, r.Close(ctx))
		}
	}
	for _, e := range r.executions {
		if err := e.pipeline.begin(ctx, e.Tree); err != nil {
			return nil, errors.Join(err, r.Close(ctx))
		}
	}
	return r, nil
}

func (r *Run) start(ctx context.Context, i int, tree string) error {
	tree, err := filepath.Abs(tree)
	if err != nil {
		return err
	}
	if info, err := os.Stat(tree); err != nil || !info.IsDir() {
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s is no directory: name one with Go sources", tree)
	}
	id := executionID(tree, i)
	store := filepath.Join(r.o.Store, id)
	if err := os.MkdirAll(store, 0o700); err != nil {
		return err
	}
	c, err := client.Connect(ctx, r.o.NATS, client.Name("demo/"+id), client.Logger(r.o.Logger))
	if err != nil {
		return err
	}
	e := &Execution{ID: id, Tree: tree, pipeline: &pipeline{c: c, execution: id, store: store}}
	r.executions = append(r.executions, e)
	return e.pipeline.work(ctx)
}

// executionID is the tree's name, made an execution's and unique.
func executionID(tree string, i int) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, filepath.Base(tree))
	return fmt.Sprintf("%.40s-%d", name, i+1)
}

// Wait returns when every message is acknowledged or dead, with what each
// execution came to; the trees are walked directly meanwhile.
func (r *Run) Wait(ctx context.Context) ([]*Execution, error) {
	errs := make([]error, 2*len(r.executions))
	var all sync.WaitGroup
	for i, e := range r.executions {
		all.Go(func() { e.Want, errs[2*i] = walk(e.Tree) })
		all.Go(func() { e.Got, errs[2*i+1] = r.await(ctx, e) })
	}
	all.Wait()
	return r.executions, errors.Join(errs...)
}

// await looks until nothing is on its way any more.
func (r *Run) await(ctx context.Context, e *Execution) (Totals, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		t, idle, err := r.look(e)
		if err != nil || idle {
			return t, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return t, protocol.Errorf(protocol.CodeTimeout, "execution %s did not finish: %d of %d messages are neither acknowledged nor dead", e.ID, t.Published-t.Acknowledged-t.DeadLettered, t.Published)
		}
	}
}

func (r *Run) look(e *Execution) (t Totals, idle bool, err error) {
	queues, err := r.o.Queues(e.ID)
	if err != nil {
		return t, false, err
	}
	onTheWay := int64(0)
	for i := range queues {
		q := &queues[i]
		t.add(q)
		onTheWay += q.Ready + q.InFlight + q.Waiting + q.Moving
	}
	if onTheWay > 0 || t.Published == 0 || t.Published != t.Acknowledged+t.DeadLettered {
		return t, false, nil
	}
	t.Files, t.Functions, err = e.pipeline.stored()
	return t, true, err
}

// Close ends the workers.
func (r *Run) Close(ctx context.Context) error {
	errs := make([]error, 0, len(r.executions))
	for _, e := range r.executions {
		errs = append(errs, e.pipeline.c.Close(ctx))
	}
	return errors.Join(errs...)
}
