package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type retryCmd struct {
	Ls     retryLsCmd     `cmd:"" help:"List the messages that wait, those due first in front: until when, and why."`
	Now    retryNowCmd    `cmd:"" help:"Let messages go at once, without waiting for their time. It costs no try."`
	Cancel retryCancelCmd `cmd:"" help:"Remove waiting messages for good. They are counted as discarded."`
}

type retryLsCmd struct {
	Queue     string `arg:"" optional:"" help:"EXECUTION/ROUTE; TOPIC for all that subscribe to it; TOPIC::observer:ID, TOPIC::@GROUP. Default all."`
	Execution string `help:"Only this execution's." placeholder:"ID"`
	Limit     int    `default:"50" help:"At most this many; 0 for all."`

	watching
}

func (c *retryLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *retryLsCmd) list(a *app) error {
	q := protocol.WaitingListRequest{Execution: c.Execution}
	if err := errors.Join(checkOnly(c.Execution), checkLimit(c.Limit)); err != nil {
		return err
	}
	if c.Queue != "" {
		var err error
		if q.Queue, q.Topic, err = operate.QueueOrTopic(c.Queue); err != nil {
			return err
		}
	}
	page, err := c.pages(a, q)
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

// pages reads as many pages as the limit asks for, as one.
func (c *retryLsCmd) pages(a *app, q protocol.WaitingListRequest) (protocol.WaitingPage, error) {
	all := protocol.WaitingPage{Messages: []protocol.WaitingMessage{}}
	for {
		q.Limit = 1000
		if c.Limit > 0 {
			q.Limit = min(q.Limit, c.Limit-len(all.Messages))
		}
		page, err := ask[protocol.WaitingPage](a, protocol.SubjectWaitingList, q)
		if err != nil {
			return all, err
		}
		all.Messages = append(all.Messages, page.Messages...)
		all.Total, all.Next, q.After = page.Total, page.Next, page.Next
		if page.Next == "" || c.Limit > 0 && len(all.Messages) >= c.Limit {
			return all, nil
		}
	}
}

func (c *retryLsCmd) report(a *app, page *protocol.WaitingPage) {
	if len(page.Messages) == 0 {
		a.sayf("nothing waits")
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
	if shown := int64(len(page.Messages)); page.Next != "" {
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
	q, err := t.request()
	if err != nil {
		return err
	}
	q.By = whoAsks()
	var reply protocol.WaitingActReply
	err = a.during(done, t.waiting(a, &q), func() (err error) {
		reply, err = askWithin[protocol.WaitingActReply](a, longTimeout, subject, q)
		return err
	})
	if err != nil {
		return err
	}
	next := command(a.flags.NATS, "retry ls")
	if reply.Count == 0 && q.MessageID != "" {
		return notFound(t.none("nothing waits"), next)
	}
	return a.show(reply, func() {
		a.sayf("%s %s", done, plural(reply.Count, "message", "messages"))
		if reply.Count == 0 {
			a.hintf("%s; see what waits: %s", t.none("nothing waits"), next)
		}
	})
}

// none says how what was asked for was read, when there is nothing of it.
func (t *waitingTarget) none(nothing string) string {
	if t.Execution != "" {
		return nothing + " of the execution " + t.Execution
	}
	return t.target.none(nothing)
}

// waiting counts the messages that are acted on.
func (t *waitingTarget) waiting(a *app, q *protocol.WaitingActRequest) func(context.Context) (int64, error) {
	if q.MessageID != "" {
		return nil
	}
	return func(context.Context) (int64, error) {
		page, err := ask[protocol.WaitingPage](a, protocol.SubjectWaitingList, protocol.WaitingListRequest{Queue: q.Queue, Topic: q.Topic, Execution: q.Execution, Limit: 1})
		return page.Total, err
	}
}

func (t *waitingTarget) request() (protocol.WaitingActRequest, error) {
	if t.Execution != "" {
		if err := checkOnly(t.Execution); err != nil {
			return protocol.WaitingActRequest{}, err
		}
		if t.All || t.What != "" {
			return protocol.WaitingActRequest{}, protocol.Errorf(protocol.CodeInvalidArgs, "--execution and something else: give one of them")
		}
		return protocol.WaitingActRequest{Execution: t.Execution}, nil
	}
	q, err := t.target.request()
	return protocol.WaitingActRequest{MessageID: q.MessageID, Queue: q.Queue, Topic: q.Topic, All: q.All}, err
}

type retryNowCmd struct{ waitingTarget }

func (c *retryNowCmd) Run(a *app) error {
	return c.act(a, protocol.SubjectWaitingNow, "released")
}

type retryCancelCmd struct{ waitingTarget }

func (c *retryCancelCmd) Run(a *app) error {
	return c.act(a, protocol.SubjectWaitingCancel, "cancelled")
}
