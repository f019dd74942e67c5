//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// spot is a queue on the broker.
type spot struct {
	b *Broker
	names
}

var (
	_ remote.Spot    = (*spot)(nil)
	_ remote.Holding = (*spot)(nil)
	_ remote.Tidying = (*spot)(nil)
)

// Name implements remote.Spot.
func (s *spot) Name() string { return s.queue }

// Establish implements remote.Spot.
func (s *spot) Establish(ctx context.Context, made remote.Made, topic string) error {
	if err := s.b.declare(ctx, s.names, made); err != nil {
		return err
	}
	if topic == "" {
		return nil
	}
	return s.b.bind(ctx, s.names, topic)
}

// EstablishDead implements remote.Spot.
func (s *spot) EstablishDead(ctx context.Context) error { return s.b.declareDead(ctx, s.names) }

// Unbind implements remote.Spot.
func (s *spot) Unbind(ctx context.Context, topic string) error {
	return s.b.unbind(ctx, s.names, topic)
}

// Remove implements remote.Spot.
func (s *spot) Remove(ctx context.Context) error { return s.b.remove(ctx, s.queue, s.dead) }

// Delay implements remote.Holding.
func (s *spot) Delay(meta *broker.Meta, now time.Time) int64 { return delay(meta, now) }

// EstablishHolding implements remote.Holding.
func (s *spot) EstablishHolding(ctx context.Context, ms int64) error {
	queue, err := s.b.holding(s.names, ms)
	if err != nil {
		return err
	}
	return s.b.hold(ctx, s.names, queue, ms)
}

// RemoveHoldings implements remote.Holding.
func (s *spot) RemoveHoldings(ctx context.Context, delays []int64) error {
	all := make([]string, 0, len(delays))
	for _, ms := range delays {
		if holding, err := s.b.holding(s.names, ms); err == nil {
			all = append(all, holding)
		}
	}
	return s.b.remove(ctx, all...)
}

const tidyMost = 10_000 // letters

// Tidy implements remote.Tidying: it takes away what was written twice among the
// oldest dead letters.
func (s *spot) Tidy(ctx context.Context) error {
	_, err := s.b.read(ctx, shelf{s.dead, true}, tidyMost,
		func(*amqp.Channel, *amqp.Delivery) (int64, error) { return 0, nil },
		func() (int64, error) { return 0, nil })
	return err
}
