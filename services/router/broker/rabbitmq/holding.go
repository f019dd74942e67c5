//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RabbitMQ's bounds, in milliseconds: a message waits longer in several turns.
const (
	longestTTL = int64(20 * 24 * 3600 * 1000)
	// expiryMargin is how much longer than its messages a holding queue lives that
	// nobody uses. RabbitMQ removes it then with all that it holds, confirms what is
	// on its way there, and counts the time for which it was down itself.
	expiryMargin = int64(24 * 3600 * 1000)
)

// madeSure is how long a queue that copies go to is known to be there. It is a
// small part of the life of a holding queue.
const madeSure = time.Hour

// holding is the queue in which its messages wait for a delay.
func (b *Broker) holding(n names, ms int64) (string, error) {
	return b.names.Format(n.scoped.Delayed(ms))
}

func (b *Broker) holdingArgs(n names, ms int64) amqp.Table {
	args := amqp.Table{
		"x-queue-type": "quorum", "x-message-ttl": ms, "x-expires": 2*ms + expiryMargin,
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": n.queue,
		"x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
	}
	b.unlimited(args)
	return args
}

// hold makes sure that a holding queue is there, and stays for longer than its
// messages. One with other arguments is a ConflictError, and not used: who knows
// how long it keeps what it is given, and where that goes.
func (b *Broker) hold(ctx context.Context, n names, queue string, ms int64) error {
	if err := b.declareQueue(ctx, queue, b.holdingArgs(n, ms)); err != nil {
		b.used(err)
		return err
	}
	_, err := b.look(ctx, queue)
	return b.failed("the queue "+queue+" could not be looked at", err)
}

// sure are queues of a place that copies go to, and when they were made sure of.
// It is used in the place's turn of the sequence.
type sure map[string]time.Time

// of makes sure of a queue by f, unless that was done and need not be done anew.
func (s sure) of(queue string, anew bool, f func() error) error {
	if at, done := s[queue]; done && !anew && time.Since(at) < madeSure {
		return nil
	}
	err := f()
	if err == nil {
		s[queue] = time.Now()
	}
	return err
}
