//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	tidyAfter = time.Second
	tidyMost  = 10_000 // letters
)

// tidy has the dead letters of a place looked through, soon. A letter was written
// twice when the first was there and nobody knew: the connection was lost, and
// the broker delivered the message again.
func (s *store) tidy(p *place) {
	if p.tidying {
		return
	}
	p.tidying = true
	s.after(tidyAfter, func() {
		p.tidying = false
		s.b.running.Go(func() {
			if err := s.b.tidy(s.ctx, p.names); err != nil {
				s.b.log.Warn("dead letters could not be looked through", "queue", p.queue, "error", err)
			}
		})
	})
}

// tidy takes away what was written twice among the oldest dead letters.
func (b *Broker) tidy(ctx context.Context, n names) error {
	_, err := b.read(ctx, shelf{n.dead, true}, tidyMost,
		func(*amqp.Channel, *amqp.Delivery) (int64, error) { return 0, nil },
		func() (int64, error) { return 0, nil })
	return err
}
