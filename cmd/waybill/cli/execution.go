package cli

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

type executionCmd struct {
	Ls     executionLsCmd     `cmd:"" help:"List the executions with what is in them, and those that are closed."`
	Close  executionCloseCmd  `cmd:"" help:"Take no more messages for an execution. What is there is finished; --purge drops it."`
	Purge  executionPurgeCmd  `cmd:"" help:"Close an execution and drop what is there: ready, waiting and dead."`
	Reopen executionReopenCmd `cmd:"" help:"Let a closed execution take messages again."`
}

type executionLsCmd struct{ watching }

func (c *executionLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *executionLsCmd) list(a *app) error {
	page, err := operated(a, operate.AllExecutions)
	if err != nil {
		return err
	}
	all := page.Executions
	defer sayMissing(a, page.Missing)
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
			ready, waiting, dead := counts(&protocol.QueueInfo{Ready: e.Ready, Waiting: e.Waiting, Dead: e.Dead, Unknown: e.Unknown})
			g.row(e.Execution, state, e.Queues, ready, e.InFlight, waiting, dead, e.Moving, e.Consumers)
		}
		g.write(a.stdout)
		sayUnknown(a, all, func(e *operate.ExecutionInfo) string { return e.Unknown })
	})
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
	unheard := unheardOf(a, id)
	var left func(context.Context) (int64, error)
	if purge {
		left = func(context.Context) (int64, error) { return messagesOf(a, id) }
	}
	var closed protocol.Execution
	err := a.during("dropped", left, func() (err error) {
		closed, err = ask[protocol.Execution](a, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: id, Purge: purge})
		return err
	})
	if err != nil {
		return err
	}
	if unheard {
		a.hintf("nothing was known of %s: it is closed in advance; if it is misspelt: %s, and see what there is: %s",
			id, command(a.flags.NATS, "execution reopen "+id), command(a.flags.NATS, "execution ls"))
	}
	return a.show(closed, func() {
		switch {
		case closed.State == protocol.ExecutionGone:
			a.sayf("%s is closed and nothing of it is left; the id is free again %s", id, until(closed.Until))
		case closed.Unknown != "":
			a.sayf("%s takes no more messages; what is still there is %s: %s", id, unknown, printable(closed.Unknown))
			if purge {
				a.hintf("it is dropped when the broker is back")
			}
		case purge:
			a.sayf("%s is closed; %s still to be dropped, as soon as what is under way has ended", id, plural(closed.Left, "message is", "messages are"))
		default:
			a.sayf("%s takes no more messages; %s still there", id, plural(closed.Left, "message is", "messages are"))
			a.hintf("see them: %s; drop them: %s", command(a.flags.NATS, "queue ls --execution "+id), command(a.flags.NATS, "execution purge "+id))
		}
	})
}

// unheardOf says whether nothing is known of an execution; false if that cannot
// be found out.
func unheardOf(a *app, id string) bool {
	if scope.CheckExecution(id) != nil {
		return false
	}
	known, err := operated(a, func(ctx context.Context, nc *nats.Conn) (bool, error) { return operate.Knows(ctx, nc, id) })
	return err == nil && !known
}

// messagesOf is the number of messages an execution has.
func messagesOf(a *app, id string) (n int64, err error) {
	page, err := queues(a, id)
	for i := range page.Queues {
		q := &page.Queues[i]
		n += q.Ready + q.InFlight + q.Waiting + q.Dead + q.Moving
	}
	return n, err
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
