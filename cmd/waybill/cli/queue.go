package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type queueCmd struct {
	Ls queueLsCmd `cmd:"" help:"List the queues with what is in them."`
}

type queueLsCmd struct {
	Execution string `help:"Only this execution's." placeholder:"ID"`
}

func (c *queueLsCmd) Run(a *app) error {
	queues, err := queues(a, c.Execution)
	if err != nil {
		return err
	}
	return a.show(queues, func() {
		if len(queues) == 0 {
			a.sayf("no queues yet; %s makes one", command(a.flags.NATS, "pub queue EXECUTION ROUTE PAYLOAD"))
			return
		}
		g := newGrid("QUEUE", "READY", "IN FLIGHT", "WAITING", "DEAD", "MOVING", "CONSUMERS", "TYPE")
		for _, q := range queues {
			g.row(q.Queue, q.Ready, q.InFlight, q.Waiting, q.Dead, q.Moving, q.Consumers, order(&q))
		}
		g.write(a.stdout)
	})
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
func queues(a *app, execution string) ([]protocol.QueueInfo, error) {
	nc, err := a.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(a.ctx, askTimeout)
	defer cancel()
	merged := map[string]*protocol.QueueInfo{}
	for _, answer := range askAll(ctx, nc, execution) {
		if answer.err != nil {
			return nil, answer.err
		}
		if len(answer.pages) == 0 {
			return nil, protocol.Errorf(protocol.CodeUnavailable, "the %s service does not answer\n  next: %s shows which do", answer.service, command(a.flags.NATS, "stats"))
		}
		for _, queues := range answer.pages {
			for _, q := range queues {
				add(merged, &q)
			}
		}
	}
	return sorted(merged), nil
}

// known is what a service's instances know of the queues: by instance, then by
// queue.
type known struct {
	service, subject string
	pages            map[string]map[string]protocol.QueueInfo
	err              error
}

// askAll asks the three services at once: each answer takes a while to be
// complete.
func askAll(ctx context.Context, nc *nats.Conn, execution string) []known {
	all := []known{
		{service: "router", subject: protocol.SubjectQueues},
		{service: "retry", subject: protocol.SubjectWaitingQueues},
		{service: "dlq", subject: protocol.SubjectDeadQueues},
	}
	var asking sync.WaitGroup
	for i := range all {
		k := &all[i]
		asking.Go(func() { k.pages, k.err = queuePages(ctx, nc, k.subject, execution) })
	}
	asking.Wait()
	return all
}

// queuePages reads all pages of all instances. A queue that comes again, in a page that overlaps, counts once.
func queuePages(ctx context.Context, nc *nats.Conn, subject, execution string) (map[string]map[string]protocol.QueueInfo, error) {
	all := map[string]map[string]protocol.QueueInfo{}
	for q := (protocol.QueuesRequest{Execution: execution}); ; {
		pages, err := mesh.Gather[protocol.QueuesPage](ctx, nc, subject, q, 0)
		if err != nil {
			return nil, err
		}
		q.After = ""
		for _, page := range pages {
			if all[page.Instance] == nil {
				all[page.Instance] = map[string]protocol.QueueInfo{}
			}
			for _, info := range page.Queues {
				all[page.Instance][info.Queue] = info
			}
			if last := len(page.Queues) - 1; page.More && last >= 0 && (q.After == "" || page.Queues[last].Queue < q.After) {
				q.After = page.Queues[last].Queue
			}
		}
		if q.After == "" {
			return all, nil
		}
	}
}

// add adds one service's counts of a queue to the others'.
func add(merged map[string]*protocol.QueueInfo, q *protocol.QueueInfo) {
	m := merged[q.Queue]
	if m == nil {
		m = &protocol.QueueInfo{Queue: q.Queue, Execution: q.Execution, Route: q.Route}
		merged[q.Queue] = m
	}
	m.Ready += q.Ready
	m.InFlight += q.InFlight
	m.Waiting += q.Waiting
	m.Dead += q.Dead
	m.Moving += q.Moving
	m.Bytes += q.Bytes
	m.Consumers += q.Consumers
	m.Type = cmp.Or(m.Type, q.Type)
	m.Groups += q.Groups
	m.HeldGroups += q.HeldGroups
	m.BlockedGroups += q.BlockedGroups
	for name, n := range q.Counters {
		if m.Counters == nil {
			m.Counters = map[string]uint64{}
		}
		m.Counters[name] += n
	}
}

func sorted(merged map[string]*protocol.QueueInfo) []protocol.QueueInfo {
	queues := make([]protocol.QueueInfo, 0, len(merged))
	for _, q := range merged {
		queues = append(queues, *q)
	}
	slices.SortFunc(queues, func(a, b protocol.QueueInfo) int { return cmp.Compare(a.Queue, b.Queue) })
	return queues
}

type subscriptionCmd struct {
	Ls subscriptionLsCmd `cmd:"" help:"List who works on which queue, and how."`
}

type subscriptionLsCmd struct {
	Execution string `help:"Only this execution's." placeholder:"ID"`
}

func (c *subscriptionLsCmd) Run(a *app) error {
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
			g.row(s.Name, s.Queue, short(s.WorkerName, 40), concurrency(&s.Subscription), s.MaxRetries,
				milliseconds(s.BackoffMs), milliseconds(s.TimeoutMs), ago(s.Since), s.ID)
		}
		g.write(a.stdout)
	})
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
		page, err := ask[protocol.SubscriptionsPage](a, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Execution: execution, Offset: len(all)})
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
