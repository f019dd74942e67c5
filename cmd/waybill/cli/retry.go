package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type retryCmd struct {
	Ls     retryLsCmd     `cmd:"" help:"List the messages that wait, those due first in front: until when, and why."`
	Now    retryNowCmd    `cmd:"" help:"Let messages go at once, without waiting for their time. It costs no try."`
	Cancel retryCancelCmd `cmd:"" help:"Remove waiting messages for good. They are counted as discarded."`
}

type retryLsCmd struct {
	Queue     string `arg:"" optional:"" help:"EXECUTION/ROUTE; the NAME of a named queue, or of a topic for all that subscribe to it; TOPIC::observer:ID, TOPIC::@GROUP. Default all."`
	Execution string `help:"Only this execution's." placeholder:"ID"`
	Limit     int    `default:"50" help:"At most this many; 0 for all."`

	watching
}

func (c *retryLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *retryLsCmd) list(a *app) error {
	if err := errors.Join(checkOnly(c.Execution), checkLimit(c.Limit)); err != nil {
		return err
	}
	sources, err := sources(c.Queue)
	if err != nil {
		return err
	}
	page, err := waiting(a, sources, c.Execution, c.Limit)
	if err != nil {
		return err
	}
	return a.show(page, func() { c.report(a, &page) })
}

func checkLimit(limit int) error {
	if limit < 0 {
		return protocol.Errorf(protocol.CodeInvalidArgs, "--limit is %d: it is a number of messages, or 0 for all", limit)
	}
	return nil
}

func waiting(a *app, sources []operate.Source, execution string, limit int) (protocol.WaitingPage, error) {
	return operated(a, func(ctx context.Context, nc *nats.Conn) (protocol.WaitingPage, error) {
		return operate.Waiting(ctx, nc, sources, execution, limit)
	})
}

func (c *retryLsCmd) report(a *app, page *protocol.WaitingPage) {
	defer sayAway(a, page.Away)
	if len(page.Messages) == 0 {
		if len(page.Away) == 0 {
			a.sayf("nothing waits")
		}
		return
	}
	tries := map[string]string{}
	g := newGrid("ID", "QUEUE", "TRY", "DUE", "WHY")
	for _, w := range page.Messages {
		of, known := tries[w.Queue]
		if !known {
			of = triesOf(a, w.Queue)
			tries[w.Queue] = of
		}
		g.row(w.MessageID, w.Queue, strconv.FormatUint(uint64(w.Attempt), 10)+of, until(w.Due), why(&w))
	}
	g.write(a.stdout)
	if shown := int64(len(page.Messages)); shown < page.Total {
		a.hintf("%d of %d; more: --limit", shown, page.Total)
	}
	a.hintf("let one go at once: %s; drop it: %s", command(a.flags.NATS, "retry now ID"), command(a.flags.NATS, "retry cancel ID"))
}

// triesOf is " of 3" for a queue whose messages have three tries, "" if nobody
// says so.
func triesOf(a *app, queue string) string {
	policy, err := ask[protocol.Policy](a, protocol.SubjectPolicy, protocol.PolicyRequest{Queue: queue})
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" of %d", policy.MaxRetries)
}

func until(due time.Time) string {
	left := time.Until(due)
	switch {
	case left <= 0:
		return "now"
	case left < 10*time.Second:
		return "in " + left.Round(100*time.Millisecond).String()
	default:
		return "in " + left.Round(time.Second).String()
	}
}

func why(w *protocol.WaitingMessage) string {
	if w.Why == protocol.WaitsForRetry {
		return short("retry after: "+w.Error, 70)
	}
	return short(string(w.Why), 70)
}

// waitingTarget is what now and cancel act on.
type waitingTarget struct {
	target

	Execution string `help:"All of this execution." placeholder:"ID"`
}

func (t *waitingTarget) act(a *app, subject, done string) error {
	of, err := t.choose()
	if err != nil {
		return err
	}
	var reply protocol.WaitingActReply
	err = a.during(done, t.waiting(a, &of), func() (err error) {
		reply, err = operatedWithin(a, longTimeout, func(ctx context.Context, nc *nats.Conn) (protocol.WaitingActReply, error) {
			q := protocol.WaitingActRequest{MessageID: of.message, Execution: t.Execution, All: of.all, By: whoAsks()}
			return operate.ActOnWaiting(ctx, nc, subject, of.sources, q)
		})
		return err
	})
	if err != nil {
		return err
	}
	next := command(a.flags.NATS, "retry ls")
	if reply.Count == 0 && of.message != "" {
		return notFound(of.none("nothing waits"), next)
	}
	return a.show(reply, func() {
		a.sayf("%s %s", done, plural(reply.Count, "message", "messages"))
		if reply.Count == 0 {
			a.hintf("%s; see what waits: %s", t.none(&of, "nothing waits"), next)
		}
	})
}

// none says how what was asked for was read, when there is nothing of it.
func (t *waitingTarget) none(of *chosen, nothing string) string {
	if t.Execution != "" {
		return nothing + " of the execution " + t.Execution
	}
	return of.none(nothing)
}

// waiting counts the messages that are acted on.
func (t *waitingTarget) waiting(a *app, of *chosen) func(context.Context) (int64, error) {
	if of.message != "" {
		return nil
	}
	return func(context.Context) (int64, error) {
		page, err := waiting(a, of.sources, t.Execution, 1)
		return page.Total, err
	}
}

func (t *waitingTarget) choose() (chosen, error) {
	if t.Execution == "" {
		return t.target.choose()
	}
	if err := checkOnly(t.Execution); err != nil {
		return chosen{}, err
	}
	if t.All || t.What != "" {
		return chosen{}, protocol.Errorf(protocol.CodeInvalidArgs, "--execution and something else: give one of them")
	}
	return chosen{}, nil
}

type retryNowCmd struct{ waitingTarget }

func (c *retryNowCmd) Run(a *app) error {
	return c.act(a, protocol.SubjectWaitingNow, "released")
}

type retryCancelCmd struct{ waitingTarget }

func (c *retryCancelCmd) Run(a *app) error {
	return c.act(a, protocol.SubjectWaitingCancel, "cancelled")
}
