//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
)

// looks are how many queues are looked into at once.
const looks = 4

// look asks a queue itself how many messages wait in it. What else the broker
// says of a queue that has no leader, or is slow to answer, is that it is empty.
// A queue that keeps an order answers, but does not tell: RESOURCE_LOCKED then.
//
// For a queue that expires when it is not used this is the use: to declare a
// quorum queue again is none, and to put something in neither.
//
// RabbitMQ closes the connection when the queue is just being made or removed: so each
// look has one of its own. With one for all, what another had just taken would go back
// some time later, behind what was taken and given back by then.
func (b *Broker) look(ctx context.Context, queue string) (n int64, err error) {
	for range looksAgain {
		n, err = b.lookOnce(ctx, queue)
		known := err == nil || isCode(err, amqp.NotFound) || isCode(err, amqp.ResourceLocked)
		if known || b.Away() != nil || !mesh.Pause(ctx, lookAgain) {
			break
		}
	}
	return n, err
}

const (
	looksAgain = 40
	lookAgain  = 100 * time.Millisecond
)

func (b *Broker) lookOnce(ctx context.Context, queue string) (int64, error) {
	var d *desk
	select {
	case d = <-b.looks:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	answer := make(chan looked, 1)
	b.running.Go(func() { // without a leader this takes more than a minute
		var l looked
		l.err = d.do(b.ctx, func(ch *amqp.Channel) error { return l.into(b.ctx, ch, queue) })
		b.looks <- d
		answer <- l
	})
	select {
	case l := <-answer:
		return l.n, l.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

type looked struct {
	n   int64
	err error
}

// into takes a message, and gives it back: the broker counts it again a moment later,
// and until then the next who looks would find nothing.
func (l *looked) into(ctx context.Context, ch *amqp.Channel, queue string) error {
	d, there, err := ch.Get(queue, false)
	if err != nil || !there {
		return err
	}
	l.n = int64(d.MessageCount) + 1
	if err := d.Nack(false, true); err != nil {
		return err
	}
	for range passingLooks {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil || int64(q.Messages) >= l.n || !mesh.Pause(ctx, backLook) {
			return err
		}
	}
	return nil // somebody else has it
}

func isCode(err error, code int) bool {
	e, is := errors.AsType[*amqp.Error](err)
	return is && e.Code == code
}

// awaitAnswer waits until all of the queues answer that are still there; false:
// ctx has ended.
func (b *Broker) awaitAnswer(ctx context.Context, queues []string) bool {
	for _, queue := range queues {
		for {
			_, err := b.look(ctx, queue)
			if err == nil || isCode(err, amqp.NotFound) || isCode(err, amqp.ResourceLocked) {
				break
			}
			if !mesh.Pause(ctx, askAgain) {
				return false
			}
		}
	}
	return ctx.Err() == nil
}

const askAgain = time.Second
