//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// names are a queue's on the broker.
type names struct {
	ledger, queue, dead string
	scoped              scope.Name
}

// namesOf are those of a queue with that ledger name.
func (b *Broker) namesOf(queue string) (names, error) {
	n, err := scope.Ledger{}.Parse(queue)
	if err != nil {
		return names{}, err
	}
	name := names{ledger: queue, scoped: n}
	if name.queue, err = b.names.Format(n); err != nil {
		return names{}, err
	}
	name.dead, err = b.names.Format(n.DeadLetters())
	return name, err
}

// deadExchange is where dead letters go through, routed by the names of their
// queues.
func (b *Broker) deadExchange() string { return b.o.Prefix + ".dlx" }

// queueArgs are a queue's. What the broker itself may drop, because a policy of
// the operator's says so, goes to the dead letters, and a full queue refuses.
func (b *Broker) queueArgs(n names, d remote.Made) amqp.Table {
	args := amqp.Table{argumentDLX: b.deadExchange(), argumentDLKey: n.dead, argumentOverflow: "reject-publish"}
	if d.MaxPriority > 0 {
		args[argumentType], args[argumentPriority] = typeClassic, int64(d.MaxPriority)
		return args
	}
	args[argumentType], args["x-dead-letter-strategy"] = typeQuorum, "at-least-once"
	b.unlimited(args)
	if d.FIFO {
		args["x-single-active-consumer"] = true
	}
	return args
}

// unlimited lifts the limit of deliveries that a version has by default: what
// counts is counted by the mesh.
func (b *Broker) unlimited(args amqp.Table) {
	if b.unbounded {
		args[argumentLimit] = int64(-1)
	}
}

// Is says what it means to what was to wait there.
func (e *ConflictError) Is(target error) bool { return target == remote.ErrElsewhere }

// declare makes a queue and the place of its dead letters. CONFLICT: one of them is
// there, and may lose messages; another that differs is used as it is.
func (b *Broker) declare(ctx context.Context, n names, d remote.Made) error {
	if err := b.declareDead(ctx, n); err != nil {
		return err
	}
	return b.have(ctx, n, n.queue, b.queueArgs(n, d))
}

// have makes a queue, or uses the one that is there.
func (b *Broker) have(ctx context.Context, n names, name string, args amqp.Table) error {
	err := b.declareQueue(ctx, name, args)
	c, differs := errors.AsType[*ConflictError](err)
	if !differs {
		return err
	}
	err = b.accept(ctx, n, args, c)
	b.conflicts.tell(b, c)
	return err
}

// restore declares a queue that is not there any more. CONFLICT: what is there may
// lose messages.
func (b *Broker) restore(ctx context.Context, n names) error {
	args := b.queueArgs(n, remote.Made{})
	err := b.declareQueue(ctx, n.queue, args)
	if c, differs := errors.AsType[*ConflictError](err); differs {
		return b.accept(ctx, n, args, c)
	}
	return err
}

// declareDead makes the place of a queue's dead letters.
func (b *Broker) declareDead(ctx context.Context, n names) error {
	args := amqp.Table{argumentType: typeQuorum}
	b.unlimited(args)
	if err := b.have(ctx, n, n.dead, args); err != nil {
		return err
	}
	return b.ask(ctx, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(b.deadExchange(), amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return b.Failed("the exchange "+b.deadExchange()+" could not be declared", err)
		}
		return b.Failed("the queue "+n.dead+" could not be bound", ch.QueueBind(n.dead, n.dead, b.deadExchange(), false, nil))
	})
}

// declareQueue declares one queue. One that is there with other arguments is a
// ConflictError. RabbitMQ says of a quorum queue that somebody
// else is declaring that it is there before it is, and who uses it then loses
// the connection: one declares it at a time.
func (b *Broker) declareQueue(ctx context.Context, name string, args amqp.Table) error {
	defer b.declaring.Take(name)()
	var declared error
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		_, declared = ch.QueueDeclare(name, true, false, false, false, args)
		return declared
	})
	if d := differs(declared); d != nil {
		return &ConflictError{Queue: name, Argument: d.argument, Text: declared.Error()}
	}
	return b.Failed("the queue "+name+" could not be declared", err)
}

// bind has a queue receive a topic. Its exchange receives what is published to
// the topic's own, so that programs may bind to either.
func (b *Broker) bind(ctx context.Context, n names, topic string) error {
	own, members, err := b.exchanges(topic)
	if err != nil {
		return err
	}
	return b.ask(ctx, func(ch *amqp.Channel) error {
		for _, name := range []string{own, members} {
			if err := ch.ExchangeDeclare(name, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
				return b.Failed("the exchange "+name+" could not be declared", err)
			}
		}
		if err := ch.ExchangeBind(members, "", own, false, nil); err != nil {
			return b.Failed("the exchange "+members+" could not be bound", err)
		}
		return b.Failed("the queue "+n.queue+" could not be bound", ch.QueueBind(n.queue, "", members, false, nil))
	})
}

// exchanges are a topic's: the one that is published to, and the one that its
// subscribers' queues are bound to.
func (b *Broker) exchanges(topic string) (own, members string, err error) {
	own, err = b.names.Format(scope.TopicName(topic))
	return own, b.o.Prefix + "." + topic + ".exchange", err
}

func (b *Broker) unbind(ctx context.Context, n names, topic string) error {
	_, members, err := b.exchanges(topic)
	if err != nil {
		return err
	}
	return b.ask(ctx, func(ch *amqp.Channel) error {
		return b.Failed("the queue "+n.queue+" could not be unbound", ch.QueueUnbind(n.queue, "", members, nil))
	})
}

// remove deletes queues that may not be there.
func (b *Broker) remove(ctx context.Context, queues ...string) error {
	errs := make([]error, 0, len(queues))
	for _, name := range queues {
		err := b.ask(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(name, false, false, false)
			return err
		})
		errs = append(errs, b.Failed("the queue "+name+" could not be deleted", err))
	}
	return errors.Join(errs...)
}

// depthOf is how many messages wait in a queue, as far as the broker knows, 0 in
// one that is not there.
func (b *Broker) depthOf(ctx context.Context, queue string) (int64, error) {
	q, _, err := b.passive(ctx, queue)
	return int64(q.Messages), err
}

func (b *Broker) passive(ctx context.Context, queue string) (q amqp.Queue, there bool, err error) {
	err = b.ask(ctx, func(ch *amqp.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if isCode(err, amqp.NotFound) {
		return amqp.Queue{}, false, nil
	}
	return q, true, b.Failed("the queue "+queue+" could not be looked at", err)
}

// surely is how many messages wait in a queue, and how many consumers it has, for who
// removes what is empty. The broker says of a queue that does not tell it in time, or
// has just begun to start, that it has nothing of either.
func (b *Broker) surely(ctx context.Context, queue string) (messages, consumers int64, err error) {
	q, there, doubted, err := b.timed(ctx, queue)
	if err != nil || !there || q.Messages+q.Consumers > 0 || !doubted && b.out.age() > starting {
		return int64(q.Messages), int64(q.Consumers), err
	}
	n, err := b.look(ctx, queue)
	switch {
	case isCode(err, amqp.NotFound):
		return 0, 0, nil
	case isCode(err, amqp.ResourceLocked): // it keeps an order, and is there
		if q, there, doubted, err = b.timed(ctx, queue); err == nil && there && doubted {
			err = errBusy
		}
		return int64(q.Messages), int64(q.Consumers), b.Failed("the queue "+queue+" could not be looked at", err)
	}
	return n, 0, b.Failed("the queue "+queue+" could not be looked into", err)
}

// timed is passive, and says whether that took so long that the broker may not know.
func (b *Broker) timed(ctx context.Context, queue string) (q amqp.Queue, there, doubted bool, err error) {
	began := time.Now()
	q, there, err = b.passive(ctx, queue)
	return q, there, q.Messages+q.Consumers == 0 && time.Since(began) >= doubtful, err
}

var errBusy = errors.New("it did not tell in time")

const (
	doubtful = 200 * time.Millisecond // the broker asks the queue for 250
	starting = 30 * time.Second
)

// conflicts are those that were told of.
type conflicts struct {
	mu   sync.Mutex
	told map[string]*ConflictError
}

func (c *conflicts) tell(b *Broker, e *ConflictError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told = make(map[string]*ConflictError)
	}
	if known := c.told[e.Queue]; known == nil || known.Argument != e.Argument {
		b.log.Error("a queue differs from its configuration", "code", protocol.CodeConflict, "queue", e.Queue, "argument", e.Argument, "error", e.Text)
	}
	c.told[e.Queue] = e
}
