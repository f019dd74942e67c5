//go:build !no_artemis

package artemis

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// consumption takes a queue's messages. It goes on over lost connections; what
// was delivered in one session is settled there or not at all.
type consumption struct {
	side   *side
	spot   *spot
	sink   remote.Sink
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	demand  broker.Demand // with no window nothing more is taken
	made    remote.Made
	topic   string
	now     *session // nil: there is none
	changed chan struct{}
}

// Want implements remote.Consumption.
func (c *consumption) Want(d broker.Demand, made remote.Made) {
	c.mu.Lock()
	c.demand, c.made = d, made
	x := c.now
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
	if x != nil {
		x.want(d.Window)
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

// run consumes until ctx ends.
func (c *consumption) run(ctx context.Context) {
	defer close(c.ended)
	wait := againMin
	for c.awaited(ctx) {
		began := time.Now()
		err := c.once(ctx)
		if err == nil {
			wait = againMin
			continue // nobody wanted more
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady {
			wait = againMin
		}
		c.side.b.log.Debug("a queue is consumed again", "queue", c.spot.address, "error", err)
		remote.Sleep(ctx, wait)
		wait = min(2*wait, againMax)
	}
}

// awaited waits until messages are wanted; false: ctx has ended.
func (c *consumption) awaited(ctx context.Context) bool {
	for c.window() == 0 {
		select {
		case <-c.changed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (c *consumption) window() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.demand.Window
}

// once consumes in one session.
func (c *consumption) once(ctx context.Context) error {
	c.mu.Lock()
	made, topic := c.made, c.topic
	c.mu.Unlock()
	if err := c.spot.Establish(ctx, made, topic); err != nil {
		return err
	}
	conn, err := c.side.in.connection(ctx)
	if err != nil {
		return err
	}
	x := newSession(c, conn, made.FIFO)
	if made.MaxPriority > 0 {
		x.first = c.waiting(ctx)
	}
	c.enter(x)
	err = x.run(ctx)
	c.enter(nil)
	x.leave()
	x.leaving.Wait()
	c.sink.Lost(x)
	return err
}

// waiting is how many messages the queue can give at once.
func (c *consumption) waiting(ctx context.Context) int {
	answers, err := c.side.b.ask(ctx, settled(c.spot.address), request{resource: onQueue(c.spot.address), attribute: messageCount})
	if err != nil {
		return 0
	}
	n, err := answers[1].number()
	if err != nil {
		return 0
	}
	return min(int(n), c.window())
}

// enter begins a session with what is wanted now.
func (c *consumption) enter(x *session) {
	c.mu.Lock()
	before := c.now
	c.now = x
	window := c.demand.Window
	c.mu.Unlock()
	c.side.b.sessions.enter(c.spot.address, before, x)
	if x != nil {
		x.want(window)
	}
}
