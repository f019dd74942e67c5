//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"

	"github.com/nats-io/nuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// Same implements broker.Comparing. The names of clusters need not differ, so a queue
// that is made here is looked for there. Prefixes do not count: the queues of executions
// have none.
func (b *Broker) Same(ctx context.Context, other broker.Remote) (same bool, err error) {
	o, is := other.(*Broker)
	if !is || o.cluster != b.cluster || o.vhost != b.vhost {
		return false, nil
	}
	name := b.o.Prefix + ".__same." + nuid.Next()
	err = b.ask(ctx, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare(name, false, true, true, false, nil); err != nil {
			return err
		}
		var found error
		same, found = o.locked(ctx, name)
		_, err := ch.QueueDelete(name, false, false, false)
		return errors.Join(found, err)
	})
	return same, b.Failed("whether it is the broker "+o.Shown+" too could not be found out", err)
}

// locked says whether there is a queue that is another connection's alone.
func (b *Broker) locked(ctx context.Context, name string) (bool, error) {
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, false, true, true, false, nil)
		return err
	})
	if isCode(err, amqp.ResourceLocked) {
		return true, nil
	}
	if isCode(err, amqp.NotFound) {
		return false, nil
	}
	return false, err
}
