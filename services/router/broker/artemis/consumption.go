//go:build !no_artemis

package artemis

import (
	"context"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// consumption takes a queue's messages, over the connection of its side.
type consumption struct {
	*remote.Taking
	side *side
	spot *spot
	sink remote.Sink
}

// once consumes in one session.
func (c *consumption) once(ctx context.Context) error {
	made, topic := c.Wanted()
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
	c.side.b.sessions.Begin(c.spot.address, x)
	c.Enter(x)
	err = x.run(ctx)
	c.Leave()
	c.side.b.sessions.End(c.spot.address, x)
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
	return min(int(n), c.Window())
}
