package cli

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

type pubTopicCmd struct {
	Topic string `arg:"" help:"The topic, such as orders.created."`
	publishing
}

func (c *pubTopicCmd) Run(a *app) error {
	receipt, err := c.publish(a, client.Topic(c.Topic))
	if err != nil {
		return err
	}
	return a.show(receipt, func() { c.report(a, receipt) })
}

func (c *pubTopicCmd) report(a *app, r *client.Receipt) {
	topic, _ := scope.Topic(c.Topic)
	switch {
	case r.Duplicate:
		a.sayf("%s was published to %s before; nothing was stored", r.MessageID, scope.TopicPrefix+topic)
	case r.Listeners == 0 && r.Durability == protocol.DurabilityNone:
		a.sayf("nobody in the mesh subscribes to %s; it went to who is on the broker %s now, and is stored nowhere", scope.TopicPrefix+topic, r.Broker)
	case r.Listeners == 0:
		a.sayf("nobody subscribes to %s; nothing was stored", scope.TopicPrefix+topic)
		a.hintf("somebody does with %s, or %s", command(a.flags.NATS, "observe "+topic+" --id ID"), command(a.flags.NATS, "listen "+topic))
	default:
		a.sayf("%s published to %s for %s (%s)", r.MessageID, scope.TopicPrefix+topic, plural(int64(r.Listeners), "subscriber", "subscribers"), r.Durability)
		if due := c.due(); !due.IsZero() {
			a.hintf("it waits until %s: %s", due.Format(time.RFC3339), command(a.flags.NATS, "retry ls"))
		}
	}
}

// inExecution is the execution that a subscription to a topic belongs to.
type inExecution struct {
	Execution string `help:"The execution this belongs to, for listings; topics are everybody's." placeholder:"ID"`
}

func (c *inExecution) options() []client.WorkOption {
	if c.Execution == "" {
		return nil
	}
	return []client.WorkOption{client.InExecution(c.Execution)}
}

type listenCmd struct {
	Topic string `arg:"" help:"The topic."`
	handling
	inExecution
	TimeoutMs int64 `default:"1800000" help:"Time limit of the one delivery in milliseconds."`
}

func (c *listenCmd) Run(a *app) error {
	opts := slices.Concat(c.handling.options(c.TimeoutMs), c.inExecution.options())
	return c.run(a, "listening to "+c.Topic, func(ctx context.Context, cl *client.Client, h client.Handler) (*client.Worker, error) {
		return cl.Listen(ctx, c.Topic, h, opts...)
	})
}

type observeCmd struct {
	Topic     string `arg:"" help:"The topic."`
	ID        string `name:"id" help:"Id of the observer and its durable queue: who observes under it again finds what it holds. Default a fresh UUID, which leaves an orphan behind. With --group it only tells the group's observers apart: the queue is the group's." placeholder:"ID"`
	Group     string `help:"Share one durable queue with all others of this group." placeholder:"GROUP"`
	Namespace string `default:"default" help:"The namespace that --name is a name in: under the same name in the same namespace an observer that was killed has its id back." placeholder:"NAMESPACE"`
	handling
	retrying
	ordering
	tuning
	inExecution
	TimeoutMs int64 `help:"Time limit of one delivery in milliseconds, at most 1800000. Default: what the mesh has for all observers (activation_timeout_ms)." placeholder:"MS"`
}

func (c *observeCmd) Run(a *app) error {
	opts := slices.Concat(c.handling.options(c.TimeoutMs), c.retrying.options(), c.ordering.options(), c.inExecution.options())
	tuned, err := c.tuning.options(a)
	if err != nil {
		return err
	}
	opts = append(opts, tuned...)
	if c.ID != "" {
		opts = append(opts, client.ID(c.ID))
	}
	if c.Group != "" {
		opts = append(opts, client.Group(c.Group))
	}
	c.connection = []client.Option{client.Namespace(c.Namespace)}
	return c.run(a, "observing "+c.Topic, func(ctx context.Context, cl *client.Client, h client.Handler) (*client.Worker, error) {
		w, err := cl.Observe(ctx, c.Topic, h, opts...)
		if err == nil && c.ID == "" && c.Group == "" {
			a.hintf("the observer's id is %s; --id %s finds its queue again", w.ObserverID(), w.ObserverID())
		}
		return w, err
	})
}
