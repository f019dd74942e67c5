package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

type queueCmd struct {
	Ls     queueLsCmd     `cmd:"" help:"List the queues with what is in them."`
	Define queueDefineCmd `cmd:"" help:"Define a named queue, for jobs, or change it; returns when the definition is stored and in force. What is not named is the default."`
	Show   queueShowCmd   `cmd:"" help:"Show a named queue: how it is defined, and what it holds."`
	Rm     queueRmCmd     `cmd:"" help:"Remove a named queue that holds no jobs."`
}

type queueLsCmd struct {
	Execution string `help:"Only this execution's." placeholder:"ID"`

	watching
}

func (c *queueLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *queueLsCmd) list(a *app) error {
	if err := checkOnly(c.Execution); err != nil {
		return err
	}
	page, err := queues(a, c.Execution)
	if err != nil {
		return err
	}
	queues := page.Queues
	defer sayMissing(a, page.Missing)
	return a.show(queues, func() {
		if len(queues) == 0 {
			a.sayf("no queues yet; %s makes one", command(a.flags.NATS, "pub queue EXECUTION ROUTE PAYLOAD"))
			return
		}
		g := newGrid("QUEUE", "READY", "IN FLIGHT", "WAITING", "DEAD", "MOVING", "CONSUMERS", "TYPE")
		for _, q := range queues {
			ready, waiting, dead := counts(&q)
			g.row(q.Queue, ready, q.InFlight, waiting, dead, q.Moving, q.Consumers, order(&q))
		}
		g.write(a.stdout)
		sayUnknown(a, queues, func(q *protocol.QueueInfo) string { return q.Unknown })
	})
}

// counts are those of a queue as a table shows them: with a broker that cannot be asked
// there may be more.
func counts(q *protocol.QueueInfo) (ready, waiting, dead any) {
	if q.Unknown != "" {
		return unknown, unknown, unknown
	}
	return q.Ready, q.Waiting, q.Dead
}

const unknown = "unknown"

// sayUnknown says for which reasons something in a table is unknown, each once.
func sayUnknown[T any](a *app, all []T, of func(*T) string) {
	var said []string
	for i := range all {
		if why := of(&all[i]); why != "" && !slices.Contains(said, why) {
			a.sayf("%s: %s", unknown, printable(why))
			said = append(said, why)
		}
	}
}

// sayMissing says of which parts of the services nothing is listed.
func sayMissing(a *app, parts operate.Missing) {
	for _, text := range parts {
		a.sayf("missing: %s", text)
	}
}

// checkOnly refuses what is no execution's id, if one is given: nothing would be
// listed, as of one that is empty.
func checkOnly(execution string) error {
	if execution == "" {
		return nil
	}
	return scope.CheckExecution(execution)
}

// order says how the groups of a FIFO queue are; nothing of another queue.
func order(q *protocol.QueueInfo) string {
	if q.Type != protocol.TypeFIFO {
		return ""
	}
	text := "fifo, " + plural(int64(q.Groups), "group", "groups")
	if q.HeldGroups > 0 {
		text += fmt.Sprintf(", %d held", q.HeldGroups)
	}
	if q.BlockedGroups > 0 {
		text += fmt.Sprintf(", %d blocked", q.BlockedGroups)
	}
	return text
}

// queues is what the services know of the queues together.
func queues(a *app, execution string) (operate.QueuePage, error) {
	return operated(a, func(ctx context.Context, nc *nats.Conn) (operate.QueuePage, error) {
		return operate.AllQueues(ctx, nc, execution)
	})
}

type subscriptionCmd struct {
	Ls subscriptionLsCmd `cmd:"" help:"List who works on which queue, and how."`
}

type subscriptionLsCmd struct {
	Execution string `help:"Only this execution's." placeholder:"ID"`

	watching
}

func (c *subscriptionLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *subscriptionLsCmd) list(a *app) error {
	if err := checkOnly(c.Execution); err != nil {
		return err
	}
	subscriptions, err := subscriptions(a, c.Execution)
	if err != nil {
		return err
	}
	return a.show(subscriptions, func() {
		if len(subscriptions) == 0 {
			a.sayf("nobody works here; %s does", command(a.flags.NATS, "work EXECUTION ROUTE"))
			return
		}
		g := newGrid("NAME", "QUEUE", "WORKER", "CONCURRENCY", "TRIES", "BACKOFF", "TIMEOUT", "SINCE", "ID")
		for _, s := range subscriptions {
			e := effective(s.Effective, s.MaxRetries, s.BackoffMs)
			g.row(s.Name, s.Queue, short(s.WorkerName, 40), concurrency(&s.Subscription), e.MaxRetries,
				backoff(&e), milliseconds(s.TimeoutMs), ago(s.Since), s.ID)
		}
		g.write(a.stdout)
		sayUnmet(a, subscriptions)
	})
}

// effective is what holds, which is what was asked for unless a router says otherwise.
func effective(e *protocol.Effective, maxRetries int, backoffMs int64) protocol.Effective {
	if e == nil {
		return protocol.Effective{MaxRetries: maxRetries, BackoffMs: backoffMs}
	}
	return *e
}

// backoff is the delay before another try.
func backoff(e *protocol.Effective) string {
	switch {
	case e.BackoffMs == 0:
		return "none"
	case e.BackoffType == protocol.BackoffFixed:
		return milliseconds(e.BackoffMs) + " always"
	}
	return milliseconds(e.BackoffMs)
}

// sayUnmet says what the brokers of subscriptions cannot do, each once.
func sayUnmet(a *app, all []protocol.SubscriptionInfo) {
	var said []string
	for i := range all {
		if e := all[i].Effective; e != nil && e.Unmet != "" && !slices.Contains(said, e.Unmet) {
			a.sayf("unmet: %s", printable(e.Unmet))
			said = append(said, e.Unmet)
		}
	}
}

func concurrency(s *protocol.Subscription) any {
	switch {
	case s.Draining:
		return "draining"
	case s.Concurrency == 0:
		return "paused"
	default:
		return s.Concurrency
	}
}

func subscriptions(a *app, execution string) ([]protocol.SubscriptionInfo, error) {
	all := []protocol.SubscriptionInfo{}
	for {
		page, err := ask[protocol.SubscriptionsPage](a, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Execution: execution, Offset: len(all), Effective: true})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Subscriptions...)
		if !page.More || len(page.Subscriptions) == 0 {
			slices.SortFunc(all, func(x, y protocol.SubscriptionInfo) int {
				return cmp.Or(strings.Compare(x.Queue, y.Queue), strings.Compare(x.ID, y.ID))
			})
			return all, nil
		}
	}
}
