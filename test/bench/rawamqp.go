package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/semaphore"
)

// amqpBroker is RabbitMQ used as its documentation says: quorum queues, publisher
// confirms within a window, a channel and a prefetch for each consumer, an
// acknowledgement for each message. Nothing fails in what is measured of it.
type amqpBroker struct {
	producer, worker *amqp.Connection
	publishing       *amqp.Channel
	confirms         chan amqp.Confirmation
	returns          chan amqp.Return
	room             *semaphore.Weighted
	queues           int
	inHand           atomic.Int64          // taken and not acknowledged
	failure          atomic.Pointer[error] // the first
	ending           sync.WaitGroup
}

func connectAMQP(ctx context.Context, url string) (broker, error) {
	b := &amqpBroker{room: semaphore.NewWeighted(window)}
	if err := b.start(url); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

func (b *amqpBroker) start(url string) (err error) {
	if b.producer, err = amqp.Dial(url); err != nil {
		return err
	}
	if b.worker, err = amqp.Dial(url); err != nil {
		return err
	}
	if b.publishing, err = b.producer.Channel(); err != nil {
		return err
	}
	if err := b.publishing.Confirm(false); err != nil {
		return err
	}
	b.confirms = b.publishing.NotifyPublish(make(chan amqp.Confirmation, window))
	b.returns = b.publishing.NotifyReturn(make(chan amqp.Return, window))
	b.ending.Go(b.confirmed)
	b.ending.Go(b.returned)
	return nil
}

func (b *amqpBroker) fail(err error) {
	if err != nil {
		b.failure.CompareAndSwap(nil, &err)
	}
}

// confirmed makes room for as many publishes as are confirmed.
func (b *amqpBroker) confirmed() {
	for c := range b.confirms {
		if !c.Ack {
			b.fail(errors.New("RabbitMQ did not take a message"))
		}
		b.room.Release(1)
	}
}

func (b *amqpBroker) returned() {
	for r := range b.returns {
		b.fail(fmt.Errorf("RabbitMQ returned a message: %s", r.ReplyText))
	}
}

func (b *amqpBroker) work(_ context.Context, w work) error {
	if w.observers > 0 || w.backoff != nil {
		return errors.New("topics and failures are not measured on raw RabbitMQ")
	}
	b.queues = w.queues
	for queue := range w.queues {
		if err := b.consume(w, route(queue)); err != nil {
			return err
		}
	}
	return nil
}

func (b *amqpBroker) consume(w work, queue string) error {
	ch, err := b.worker.Channel()
	if err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		return err
	}
	if err := ch.Qos(max(16, min(inHand/w.queues, mostPrefetch)), 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	b.ending.Go(func() {
		for d := range deliveries {
			b.inHand.Add(1)
			w.handle(d.Body)
			b.fail(d.Ack(false))
			b.inHand.Add(-1)
		}
	})
	return nil
}

// mostPrefetch of a quorum queue.
const mostPrefetch = 2000

func (b *amqpBroker) publish(ctx context.Context, queue int, payload []byte) error {
	if err := b.room.Acquire(ctx, 1); err != nil {
		return err
	}
	return b.publishing.PublishWithContext(ctx, "", route(queue), true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: payload})
}

func (b *amqpBroker) flush(ctx context.Context) error {
	if err := b.room.Acquire(ctx, window); err != nil {
		return err
	}
	b.room.Release(window)
	if failure := b.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

func (b *amqpBroker) left(context.Context) (unsettled, dead int64, err error) {
	ch, err := b.worker.Channel()
	if err != nil {
		return 0, 0, err
	}
	unsettled = b.inHand.Load()
	for queue := range b.queues {
		q, err := ch.QueueDeclarePassive(route(queue), true, false, false, false, nil)
		if err != nil {
			return 0, 0, err
		}
		unsettled += int64(q.Messages)
	}
	return unsettled, 0, ch.Close()
}

func (b *amqpBroker) redrive(context.Context) error {
	return errors.New("a redrive is not measured on raw RabbitMQ")
}

func (b *amqpBroker) close(context.Context) error {
	var err error
	for _, conn := range []*amqp.Connection{b.producer, b.worker} {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	b.ending.Wait()
	if failure := b.failure.Load(); failure != nil {
		err = errors.Join(err, fmt.Errorf("RabbitMQ reported: %w", *failure))
	}
	return err
}
