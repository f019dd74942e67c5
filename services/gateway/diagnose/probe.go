package diagnose

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// probe is one message, there and back.
type probe struct {
	subject          *subject
	lane             string
	at               site
	execution, topic string // one of them
	route            string // with the execution

	broker              string
	published, consumed time.Duration
	err                 *protocol.Error // nil: it got through
}

// try tries probes at once. Those of topics are apart: that a router does not
// answer for a topic does not concern the queues.
func (r *run) try(ctx context.Context, probes []*probe) {
	var routes, topics []*probe
	for _, p := range probes {
		if p.topic != "" {
			topics = append(topics, p)
		} else {
			routes = append(routes, p)
		}
	}
	var trying sync.WaitGroup
	trying.Go(func() { r.tryAll(ctx, routes) })
	trying.Go(func() { r.tryAll(ctx, topics) })
	trying.Wait()
}

func (r *run) tryAll(ctx context.Context, probes []*probe) {
	if len(probes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*probeTime) // each step has its own
	defer cancel()
	c, err := r.o.Connect(ctx)
	if err != nil {
		for _, p := range probes {
			p.err = failure(ctx, err)
		}
		return
	}
	defer func() {
		if err := c.Close(context.WithoutCancel(ctx)); err != nil {
			r.o.Logger.Warn("a diagnosis has not ended its subscriptions in order", "error", err)
		}
	}()
	var trying sync.WaitGroup
	for _, p := range probes {
		trying.Go(func() { p.err = failure(ctx, p.try(ctx, c)) })
	}
	trying.Wait()
	r.used(probes)
}

// failure is err with a code; nil for nil.
func failure(ctx context.Context, err error) *protocol.Error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && protocol.CodeOf(err) == "" {
		return protocol.Errorf(protocol.CodeTimeout, "the time of the diagnosis was over")
	}
	return protocol.AsError(err)
}

// try subscribes, publishes and waits for the message.
func (p *probe) try(ctx context.Context, c *client.Client) error {
	token := rand.Text()
	arrived := make(chan time.Time, 1)
	handle := func(_ context.Context, d *client.Delivery) error {
		if string(d.Data) == token {
			select {
			case arrived <- time.Now():
			default: // it has come before
			}
		}
		return nil
	}
	subscribing, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	to, err := p.subscribe(subscribing, c, handle)
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, probeTime)
	defer cancel()
	began := time.Now()
	published, err := c.PublishMany(ctx, []client.Message{{To: to, Data: []byte(token)}}) // which does not try again
	if err != nil {
		return err
	}
	receipt := published[0].Receipt
	p.published, p.broker = time.Since(began), receipt.Broker
	select {
	case at := <-arrived:
		p.consumed = at.Sub(began)
		return nil
	case <-ctx.Done():
		return protocol.Errorf(protocol.CodeTimeout, "the message was stored (%s, %s), and in %v no consumer had it", receipt.Broker, cmp.Or(receipt.Durability, protocol.DurabilityNone), probeTime)
	}
}

func (p *probe) subscribe(ctx context.Context, c *client.Client, h client.Handler) (client.Destination, error) {
	if p.topic != "" {
		_, err := c.Listen(ctx, p.topic, h, client.Concurrency(1))
		return client.Topic(p.topic), err
	}
	_, err := c.Work(ctx, p.execution, p.route, h, client.Concurrency(1))
	return client.Queue(p.execution, p.route), err
}
