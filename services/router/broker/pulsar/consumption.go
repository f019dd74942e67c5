//go:build !no_pulsar

package pulsar

import (
	"context"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// consumption takes a queue's messages, from its own topic and from the one it
// receives.
type consumption struct {
	*remote.Taking
	b    *Broker
	spot *spot
	sink remote.Sink
}

// receives says whether the queue receives a topic.
func (c *consumption) receives(topic string) bool { return topic != "" && c.spot.from.some() }

// once consumes in one session.
func (c *consumption) once(ctx context.Context) error {
	made, topic := c.Wanted()
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
	c.Enter(x)
	c.b.sessions.Begin(c.spot.topic, x)
	err := x.run(ctx)
	c.Leave()
	x.close()
	c.b.sessions.End(c.spot.topic, x)
	c.sink.Lost(x)
	return err
}
