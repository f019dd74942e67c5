//go:build !no_pulsar

package pulsar

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// steady is how long a session lives that was none that the broker ends at once.
const steady = 5 * time.Second

// consumption takes a queue's messages, from its own topic and from the one it
// receives. It goes on over lost connections; what was delivered in one session is
// settled there or not at all.
type consumption struct {
	b      *Broker
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
	c.topic = topic
	x := c.now
	c.mu.Unlock()
	if x != nil && x.receives != c.receives(topic) {
		x.finish(errReceives)
	}
}

// receives says whether the queue receives a topic.
func (c *consumption) receives(topic string) bool { return topic != "" && c.spot.from.some() }

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
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Since(began) > steady {
			wait = againMin
		}
		if err == nil {
			continue // nobody wanted more
		}
		c.b.log.Debug("a queue is consumed again", "queue", c.spot.topic, "error", err)
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
	if c.receives(topic) {
		defer c.b.receiving.Take(c.spot.topic)()
	}
	if err := c.spot.Establish(ctx, made, topic); err != nil {
		return err
	}
	x := newSession(c, c.receives(topic))
	if err := x.open(made.FIFO); err != nil {
		return err
	}
	c.enter(x)
	c.b.sessions.add(c.spot.topic, x)
	err := x.run(ctx)
	c.enter(nil)
	x.close()
	c.b.sessions.remove(c.spot.topic, x)
	c.sink.Lost(x)
	return err
}

// enter begins a session with what is wanted now.
func (c *consumption) enter(x *session) {
	c.mu.Lock()
	c.now = x
	window, topic := c.demand.Window, c.topic
	c.mu.Unlock()
	if x == nil {
		return
	}
	x.want(window)
	if x.receives != c.receives(topic) {
		x.finish(errReceives)
	}
}
