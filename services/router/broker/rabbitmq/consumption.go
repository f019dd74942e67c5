//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// consumption takes a queue's messages, on a channel of its own. It goes on over
// lost channels and connections; what was delivered on one is settled there or
// not at all.
type consumption struct {
	b      *Broker
	link   *link
	spot   *spot
	sink   remote.Sink
	cancel context.CancelFunc
	ended  chan struct{}
	rests  chan chan<- bool
	shelf  atomic.Int64 // session.shelf
	doubt  bool         // something went back with a channel that the broker may not count yet

	mu      sync.Mutex
	demand  broker.Demand // with no window nothing more is taken
	made    remote.Made
	topic   string
	changed chan struct{}
}

var (
	_ remote.Consumption = (*consumption)(nil)
	_ remote.Resting     = (*consumption)(nil)
	_ remote.Shelving    = (*consumption)(nil)
)

// Want implements remote.Consumption.
func (c *consumption) Want(d broker.Demand, made remote.Made) {
	c.mu.Lock()
	same := c.demand.Window == d.Window
	c.demand, c.made = d, made
	c.mu.Unlock()
	if same {
		return
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Receive implements remote.Consumption.
func (c *consumption) Receive(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topic = topic
}

// Stop implements remote.Consumption.
func (c *consumption) Stop() { c.cancel() }

// Wait implements remote.Consumption.
func (c *consumption) Wait() { <-c.ended }

// Rest implements remote.Resting.
func (c *consumption) Rest(ctx context.Context) bool {
	answer := make(chan bool, 1)
	select {
	case c.rests <- answer:
		return <-answer
	case <-c.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// Shelved implements remote.Shelving.
func (c *consumption) Shelved() int { return int(c.shelf.Load()) }

func (c *consumption) wanted() broker.Demand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.demand
}

// run consumes until ctx ends.
func (c *consumption) run(ctx context.Context) {
	defer close(c.ended)
	defer c.link.channels.Add(-1)
	wait := againMin
	for c.awaited(ctx) {
		err := c.once(ctx)
		if ctx.Err() != nil {
			return
		}
		c.tell(err)
		mesh.Pause(ctx, wait)
		wait = min(2*wait, againMax)
	}
}

// awaited waits until messages are wanted; false: ctx has ended.
func (c *consumption) awaited(ctx context.Context) bool {
	for c.wanted().Window == 0 {
		select {
		case <-c.changed:
		case answer := <-c.rests:
			answer <- !c.doubt
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// tell says that a channel ended. The end of a connection is told by itself.
func (c *consumption) tell(err error) {
	log, queue := c.b.log, c.spot.queue
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case ok && e.Code == amqp.PreconditionFailed && strings.Contains(e.Reason, "timed out"):
		log.Error("a handler runs longer than RabbitMQ waits: its message is delivered again; set RabbitMQ's consumer_timeout above the longest handler", "code", protocol.CodeTimeout, "queue", queue, "error", err)
	case c.link.away() != nil, ok && !e.Recover, protocol.CodeOf(err) == protocol.CodeConflict: // which was told
		log.Debug("a queue's channel was closed and is opened again", "queue", queue, "error", err)
	default:
		log.Warn("a queue's channel was closed and is opened again", "queue", queue, "error", err)
	}
}

// once consumes on one channel.
func (c *consumption) once(ctx context.Context) error {
	c.mu.Lock()
	made, topic := c.made, c.topic
	fifo := made.FIFO || c.demand.FIFO // it may have been made before it was known to be in order
	c.mu.Unlock()
	if err := c.spot.Establish(ctx, made, topic); err != nil {
		return err
	}
	ch, err := c.link.channel(ctx)
	if err != nil {
		return err
	}
	x := newSession(c, ch, fifo)
	err = x.run(ctx)
	x.leave()
	c.doubt = c.doubt || x.unsettled() > 0 || x.rejected
	c.sink.Lost(x)
	return err
}
