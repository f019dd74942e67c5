package diagnose

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	// tidyTime is how long tidying up may take; what is left then is removed by a
	// later run.
	tidyTime = 20 * time.Second
	// tidyAgain is the pause before what could not be purged yet is asked again.
	tidyAgain = 100 * time.Millisecond
	// tidying executions at once.
	tidying = 4
	// abandoned is the age at which what a run has left is another's to remove:
	// its process was killed, or a service was away.
	abandoned = 10 * time.Minute
)

// used notes the executions in which something was stored, or may have been.
// While nobody answers for a lane there is nobody to tidy it up either.
func (r *run) used(probes []*probe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range probes {
		if p.execution != "" && (p.err == nil || p.err.Code != protocol.CodeUnavailable) {
			r.executions[p.execution] = true
		}
	}
}

// tidy removes everything of this run, and what an earlier one has left. The
// topics' listeners have gone with their subscriptions.
func (r *run) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	ids := make(chan string)
	var removing sync.WaitGroup
	for range tidying {
		removing.Go(func() {
			for id := range ids {
				if err := Remove(ctx, r.o.NC, id); err != nil {
					r.o.Logger.Warn("a diagnosis has left its execution; a later one removes it", "execution", id, "error", err)
				}
			}
		})
	}
	left(ctx, r.o.NC, r.executions)
	for id := range r.executions {
		ids <- id
	}
	close(ids)
	removing.Wait()
}

// Remove drops what is in an execution that the mesh was tried out in, and then
// its tombstone too: nobody publishes late to an id that was used once.
func Remove(ctx context.Context, nc *nats.Conn, id string) error {
	for {
		closed, err := mesh.Request[protocol.Execution](ctx, nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: id, Purge: true})
		if err != nil {
			return err
		}
		if closed.State == protocol.ExecutionGone {
			break
		}
		select {
		case <-time.After(tidyAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := mesh.Request[protocol.Empty](ctx, nc, protocol.SubjectExecutionReopen, protocol.ExecutionReopenRequest{Execution: id})
	if protocol.CodeOf(err) == protocol.CodeNotFound {
		return nil
	}
	return err
}

// left adds the executions of runs that ended without tidying up.
func left(ctx context.Context, nc *nats.Conn, ids map[string]bool) {
	note := func(id string) {
		if at, ok := begun(id); ok && time.Since(at) > abandoned {
			ids[id] = true
		}
	}
	q := protocol.ExecutionsRequest{After: scope.DiagnosisPrefix}
	if page, err := mesh.Request[protocol.ExecutionsPage](ctx, nc, protocol.SubjectExecutions, q); err == nil {
		for i := range page.Executions {
			note(page.Executions[i].Execution)
		}
	}
	// What some instances do not tell now, they tell another run.
	pages, _ := mesh.Gather[protocol.ExecutionCountsPage](ctx, nc, protocol.SubjectRouterExecutions, q, 0)
	for i := range pages {
		for j := range pages[i].Executions {
			note(pages[i].Executions[j].Execution)
		}
	}
}
