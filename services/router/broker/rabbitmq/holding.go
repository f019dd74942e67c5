//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// RabbitMQ's bounds, in milliseconds: a message waits longer in several turns.
const (
	longestTTL = int64(20 * 24 * 3600 * 1000)
	// expiryMargin is how much longer than its messages a holding queue lives that
	// nobody uses. RabbitMQ removes it then with all that it holds, confirms what is
	// on its way there, and counts the time for which it was down itself.
	expiryMargin = int64(24 * 3600 * 1000)
)

// delay is how long a message waits, in whole milliseconds, rounded up: after a
// failure as long as was decided, counted from now on. A delay that its publish
// asked for differs by the message's way here: it is rounded up to two digits,
// so that there are few different ones.
func delay(meta *broker.Meta, now time.Time) int64 {
	if meta.Due == 0 {
		return 0
	}
	if meta.LastFailure > 0 {
		return min(max(0, milliseconds(meta.Due-meta.LastFailure)), longestTTL)
	}
	ms := milliseconds(meta.Due - now.UnixNano())
	step := int64(1)
	for ms/step >= 100 {
		step *= 10
	}
	return min(max(0, (ms+step-1)/step*step), longestTTL)
}

func milliseconds(ns int64) int64 {
	return (ns + int64(time.Millisecond) - 1) / int64(time.Millisecond)
}

// holding is the queue in which its messages wait for a delay.
func (b *Broker) holding(n names, ms int64) (string, error) {
	return b.names.Format(n.scoped.Delayed(ms))
}

func (b *Broker) holdingArgs(n names, ms int64) amqp.Table {
	args := amqp.Table{
		argumentType: typeQuorum, argumentTTL: ms, argumentExpires: 2*ms + expiryMargin,
		argumentDLX: "", argumentDLKey: n.queue,
		argumentOverflow: "reject-publish", "x-dead-letter-strategy": "at-least-once",
	}
	b.unlimited(args)
	return args
}

// hold makes sure that a holding queue is there, and stays for longer than its
// messages. One with other arguments is a ConflictError, and not used: who knows
// how long it keeps what it is given, and where that goes.
func (b *Broker) hold(ctx context.Context, n names, queue string, ms int64) error {
	err := b.declareQueue(ctx, queue, b.holdingArgs(n, ms))
	if c, differs := errors.AsType[*ConflictError](err); differs {
		b.conflicts.tell(b, c)
	}
	if err != nil {
		return err
	}
	_, err = b.look(ctx, queue)
	return b.Failed("the queue "+queue+" could not be looked at", err)
}
