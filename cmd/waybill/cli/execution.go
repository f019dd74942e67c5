package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type executionCmd struct {
	Ls     executionLsCmd     `cmd:"" help:"List the executions with what is in them, and those that are closed."`
	Close  executionCloseCmd  `cmd:"" help:"Take no more messages for an execution. What is there is finished; --purge drops it."`
	Purge  executionPurgeCmd  `cmd:"" help:"Close an execution and drop what is there: ready, waiting and dead."`
	Reopen executionReopenCmd `cmd:"" help:"Let a closed execution take messages again."`
}

type executionLsCmd struct{}

// execution is an execution for people and machines.
type execution struct {
	protocol.ExecutionCounts

	State protocol.ExecutionState `json:"state"`
	Until time.Time               `json:"until,omitzero"`
}

func (c *executionLsCmd) Run(a *app) error {
	all, err := executions(a)
	if err != nil {
		return err
	}
	return a.show(all, func() {
		if len(all) == 0 {
			a.sayf("no executions yet; %s makes one", command(a.flags.NATS, "pub queue EXECUTION ROUTE PAYLOAD"))
			return
		}
		g := newGrid("EXECUTION", "STATE", "QUEUES", "READY", "IN FLIGHT", "WAITING", "DEAD", "MOVING", "CONSUMERS")
		for _, e := range all {
			state := string(e.State)
			if e.State == protocol.ExecutionGone {
				state += ", free " + until(e.Until)
			}
			g.row(e.Execution, state, e.Queues, e.Ready, e.InFlight, e.Waiting, e.Dead, e.Moving, e.Consumers)
		}
		g.write(a.stdout)
	})
}

// executions is what the services know of the executions together.
func executions(a *app) ([]execution, error) {
	nc, err := a.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(a.ctx, askTimeout)
	defer cancel()
	merged := map[string]*execution{}
	for _, of := range []struct{ service, subject string }{
		{"router", protocol.SubjectRouterExecutions}, {"retry", protocol.SubjectRetryExecutions}, {"dlq", protocol.SubjectDeadExecutions},
	} {
		if err := countExecutions(ctx, nc, of.subject, merged); err != nil {
			return nil, missing(a, of.service, err)
		}
	}
	if err := closedExecutions(ctx, nc, merged); err != nil {
		return nil, err
	}
	all := []execution{}
	for _, e := range merged {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b execution) int { return strings.Compare(a.Execution, b.Execution) })
	return all, nil
}

func missing(a *app, service string, err error) error {
	if protocol.CodeOf(err) != protocol.CodeUnavailable {
		return err
	}
	return protocol.Errorf(protocol.CodeUnavailable, "the %s service does not answer\n  next: %s shows which do", service, command(a.flags.NATS, "stats"))
}

// countExecutions reads all pages of all instances of a service. What comes
// again, in a page that overlaps, counts once.
func countExecutions(ctx context.Context, nc *nats.Conn, subject string, merged map[string]*execution) error {
	seen := map[[2]string]bool{} // instance, execution
	for q := (protocol.ExecutionsRequest{}); ; {
		pages, err := mesh.Gather[protocol.ExecutionCountsPage](ctx, nc, subject, q, 0)
		if err != nil {
			return err
		}
		if len(pages) == 0 {
			return protocol.Errorf(protocol.CodeUnavailable, "nobody answers on %s", subject)
		}
		q.After = ""
		for _, page := range pages {
			for _, counts := range page.Executions {
				if key := [2]string{page.Instance, counts.Execution}; !seen[key] {
					seen[key] = true
					addExecution(merged, &counts)
				}
			}
			if last := len(page.Executions) - 1; page.More && (q.After == "" || page.Executions[last].Execution < q.After) {
				q.After = page.Executions[last].Execution
			}
		}
		if q.After == "" {
			return nil
		}
	}
}

func addExecution(merged map[string]*execution, c *protocol.ExecutionCounts) {
	e := merged[c.Execution]
	if e == nil {
		e = &execution{State: protocol.ExecutionOpen}
		e.Execution = c.Execution
		merged[c.Execution] = e
	}
	e.Queues = max(e.Queues, c.Queues)
	e.Ready += c.Ready
	e.InFlight += c.InFlight
	e.Waiting += c.Waiting
	e.Dead += c.Dead
	e.Moving += c.Moving
	e.Bytes += c.Bytes
	e.Consumers += c.Consumers
}

func closedExecutions(ctx context.Context, nc *nats.Conn, merged map[string]*execution) error {
	for q := (protocol.ExecutionsRequest{}); ; {
		page, err := mesh.Request[protocol.ExecutionsPage](ctx, nc, protocol.SubjectExecutions, q)
		if err != nil {
			return err
		}
		for _, closed := range page.Executions {
			addExecution(merged, &protocol.ExecutionCounts{Execution: closed.Execution})
			merged[closed.Execution].State, merged[closed.Execution].Until = closed.State, closed.Until
			q.After = closed.Execution
		}
		if !page.More || len(page.Executions) == 0 {
			return nil
		}
	}
}

type executionCloseCmd struct {
	Execution string `arg:"" help:"Execution id."`
	Purge     bool   `help:"Drop what is there."`
}

func (c *executionCloseCmd) Run(a *app) error { return closeExecution(a, c.Execution, c.Purge) }

type executionPurgeCmd struct {
	Execution string `arg:"" help:"Execution id."`
}

func (c *executionPurgeCmd) Run(a *app) error { return closeExecution(a, c.Execution, true) }

func closeExecution(a *app, id string, purge bool) error {
	closed, err := ask[protocol.Execution](a, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: id, Purge: purge})
	if err != nil {
		return err
	}
	return a.show(closed, func() {
		switch {
		case closed.State == protocol.ExecutionGone:
			a.sayf("%s is closed and nothing of it is left; the id is free again %s", id, until(closed.Until))
		case purge:
			a.sayf("%s is closed; %s still to be dropped, as soon as what is under way has ended", id, plural(closed.Left, "message is", "messages are"))
		default:
			a.sayf("%s takes no more messages; %s still there", id, plural(closed.Left, "message is", "messages are"))
			a.hintf("see them: %s; drop them: %s", command(a.flags.NATS, "queue ls --execution "+id), command(a.flags.NATS, "execution purge "+id))
		}
	})
}

type executionReopenCmd struct {
	Execution string `arg:"" help:"Execution id."`
}

func (c *executionReopenCmd) Run(a *app) error {
	_, err := ask[protocol.Empty](a, protocol.SubjectExecutionReopen, protocol.ExecutionReopenRequest{Execution: c.Execution})
	if protocol.CodeOf(err) == protocol.CodeNotFound {
		return protocol.Errorf(protocol.CodeNotFound, "%s is not closed\n  next: %s lists those that are", c.Execution, command(a.flags.NATS, "execution ls"))
	}
	if err != nil {
		return err
	}
	return a.show(protocol.Empty{}, func() { a.sayf("%s takes messages again", c.Execution) })
}
