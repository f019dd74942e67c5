//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

var _ broker.Shelves = (*Broker)(nil)

// Waiting reads what is in the holding queues. As long as it is in our hands it
// does not expire: it does so when it is back.
func (b *Broker) Waiting(ctx context.Context, queue string, delays []int64, n int, id protocol.MessageID) (all []broker.Letter, err error) {
	err = b.eachHolding(queue, delays, func(_ names, holding string) error {
		found, err := b.browse(ctx, shelf{name: holding}, queue, n, id)
		all = append(all, found...)
		return err
	})
	return all, err
}

// ActWaiting acts on what is in the holding queues.
func (b *Broker) ActWaiting(ctx context.Context, queue string, delays []int64, a broker.Action) (sum int64, err error) {
	err = b.eachHolding(queue, delays, func(n names, holding string) error {
		count, err := b.act(ctx, shelf{name: holding}, n, a, released)
		sum += count
		return err
	})
	return sum, err
}

// Ready looks for a message in a queue that nobody consumes.
func (b *Broker) Ready(ctx context.Context, queue string, id protocol.MessageID) ([]broker.Letter, error) {
	n, err := b.namesOf(queue)
	if err != nil {
		return nil, err
	}
	return b.browse(ctx, shelf{name: n.queue}, queue, 0, id)
}

func (b *Broker) eachHolding(queue string, delays []int64, f func(n names, holding string) error) error {
	n, err := b.namesOf(queue)
	if err != nil {
		return err
	}
	for _, ms := range delays {
		holding, err := b.holding(n, ms)
		if err == nil {
			err = f(n, holding)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// released is a message that waits as it goes before its time. It is the same
// copy: should it come by itself too, that is known to be nothing new.
func released(d *amqp.Delivery, l *broker.Letter, by string) (amqp.Publishing, error) {
	meta := l.Meta
	meta.Due, meta.Reason = 0, ""
	meta.Tell(ledger.Event{Kind: ledger.Released, At: time.Now().UnixNano(), Generation: meta.Generation, Attempt: meta.Attempt, By: by})
	message, err := outward(l.Message, &meta)
	if err == nil {
		message.Headers[remote.HeaderCopy] = d.Headers[remote.HeaderCopy]
	}
	return message, err
}
