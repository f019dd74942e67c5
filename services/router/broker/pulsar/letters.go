//go:build !no_pulsar

package pulsar

import (
	"context"
	"errors"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Depth says how much the broker has of a queue. What the lane has in hand was in
// the broker's count when that was asked for; what comes or goes meanwhile counts as
// ready, so that nothing there is ever overlooked.
func (b *Broker) Depth(ctx context.Context, queue string, _ []int64) (broker.Depth, error) {
	s, err := b.spotOf(queue)
	if err != nil {
		return broker.Depth{}, err
	}
	x, mark := b.sessions.of(s.topic), uint64(0)
	if x != nil {
		mark = x.mark()
	}
	own, err := b.admin.count(ctx, s.topic, subscription)
	var received, dead subscribed
	if err == nil && s.from.some() {
		received, err = b.admin.count(ctx, s.from.topic, s.from.subscription)
	}
	if err == nil {
		dead, err = b.admin.count(ctx, s.dead, subscription)
	}
	if err != nil {
		return broker.Depth{}, b.failed("the topic "+s.topic+" could not be looked at", err)
	}
	held := int64(0)
	if x != nil {
		held = x.holds(mark)
	}
	there := max(0, own.Backlog+received.Backlog-held)
	waiting := min(max(own.Delayed, b.waiting.count(s.topic)), own.Backlog, there)
	return broker.Depth{Ready: there - waiting, Waiting: waiting, Dead: dead.Backlog}, nil
}

var noID protocol.MessageID

// Browse reads the oldest dead letters: they are taken without being settled and
// given back in their order.
func (b *Broker) Browse(ctx context.Context, queue string, most int, id protocol.MessageID) ([]broker.Letter, error) {
	var letters []broker.Letter
	err := b.letters(ctx, queue, func(r *reading) error {
		for id != noID || len(letters) < most {
			d, err := r.next(ctx)
			if err != nil || d == nil {
				return err
			}
			if id != noID && d.Message.ID != id {
				continue
			}
			letters = append(letters, letterOf(d, queue))
			if id != noID {
				return nil
			}
		}
		return nil
	})
	return letters, err
}

func letterOf(d *letter, queue string) broker.Letter {
	meta := d.Meta
	meta.Queue = queue
	return broker.Letter{Message: d.Message, Meta: meta}
}

// Act redrives or discards dead letters. Each is sent to its queue again,
// confirmed, and only then settled here.
func (b *Broker) Act(ctx context.Context, queue string, a broker.Action) (acted int64, err error) {
	err = b.letters(ctx, queue, func(r *reading) error {
		for {
			n, more, err := r.act(ctx, a)
			acted += n
			if err != nil || !more {
				return err
			}
		}
	})
	return acted, err
}

// reading takes the messages that a subscription had when it began, one consumer at
// a time.
type reading struct {
	b        *Broker
	s        *spot
	consumer pulsar.Consumer
	left     int64 // that were not taken yet
}

// letter is a dead letter with what settles it.
type letter struct {
	remote.Delivery
	id pulsar.MessageID
}

// letters has f read dead letters, and gives back those that it does not settle.
func (b *Broker) letters(ctx context.Context, queue string, f func(r *reading) error) error {
	s, err := b.spotOf(queue)
	if err != nil {
		return err
	}
	defer b.shelves.Take(s.dead)()
	there, err := b.admin.count(ctx, s.dead, subscription)
	if err != nil {
		return b.failed("the dead letters in "+s.dead+" could not be counted", err)
	}
	if there.Backlog == 0 {
		return nil
	}
	consumer, err := b.client.Subscribe(pulsar.ConsumerOptions{
		Topic: s.dead, SubscriptionName: subscription, Type: pulsar.Exclusive, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		ReceiverQueueSize: 100, AckWithResponse: true, EnableBatchIndexAcknowledgment: true, BackOffPolicyFunc: newPatience,
	})
	if err != nil {
		return b.failed("the dead letters in "+s.dead+" could not be read", err)
	}
	defer consumer.Close()
	return f(&reading{b, s, consumer, there.Backlog})
}

// nextWait is longer than a message takes that is there.
const nextWait = 3 * time.Second

// receive is the next message; nil: there is none any more.
func (r *reading) receive(ctx context.Context) (pulsar.Message, error) {
	if r.left == 0 {
		return nil, nil //nolint:nilnil // the end
	}
	r.left--
	soon, cancel := context.WithTimeout(ctx, nextWait)
	defer cancel()
	m, err := r.consumer.Receive(soon)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // somebody else has taken it
		return nil, nil //nolint:nilnil // the end
	}
	return m, r.b.failed("the dead letters in "+r.s.dead+" could not be read", err)
}

// next is the next letter; nil: there is none any more.
func (r *reading) next(ctx context.Context) (*letter, error) {
	m, err := r.receive(ctx)
	if m == nil {
		return nil, err
	}
	return &letter{decode(m), m.ID()}, nil
}

// actOnce is how many letters are on their way at once.
const actOnce = 256

// act redrives or discards the next letters; more: there may be others.
func (r *reading) act(ctx context.Context, a broker.Action) (n int64, more bool, err error) {
	var all []*letter
	for len(all) < actOnce {
		d, err := r.next(ctx)
		if err != nil {
			return 0, false, err
		}
		if d == nil {
			break
		}
		if a.ID == noID || d.Message.ID == a.ID {
			all = append(all, d)
		}
		if a.ID != noID && len(all) == 1 {
			break
		}
	}
	if len(all) == 0 {
		return 0, false, nil
	}
	if a.Redrive {
		if err := r.redrive(ctx, all, a.By); err != nil {
			return 0, false, err
		}
	}
	ids := make([]pulsar.MessageID, len(all))
	for i, d := range all {
		ids[i] = d.id
	}
	if err := r.consumer.AckIDList(ids); err != nil {
		return 0, false, r.b.failed("dead letters in "+r.s.dead+" could not be settled", err)
	}
	return int64(len(all)), a.ID == noID && len(all) == actOnce, nil
}

// redrive sends letters to their queue and returns when the broker has them all.
func (r *reading) redrive(ctx context.Context, all []*letter, by string) error {
	if err := r.s.Establish(ctx, remote.Made{}, ""); err != nil {
		return err
	}
	messages := make([]*pulsar.ProducerMessage, len(all))
	for i, d := range all {
		meta := broker.Meta{Generation: d.Meta.Generation + 1, Attempt: 1, Spans: d.Meta.Spans}
		meta.Tell(ledger.Event{Kind: ledger.Redrove, At: time.Now().UnixNano(), Generation: meta.Generation, Attempt: 1, By: by})
		var err error
		if messages[i], err = encode(&remote.Writing{Kind: remote.Fresh, Spot: r.s, Message: d.Message, Meta: &meta}); err != nil {
			return err
		}
	}
	return r.b.failed("dead letters of "+r.s.topic+" could not be redriven, and stay", r.b.writeAll(ctx, r.s.topic, messages))
}

// writeAll returns when the broker has all messages.
func (b *Broker) writeAll(ctx context.Context, topic string, all []*pulsar.ProducerMessage) error {
	said := make(chan error, len(all))
	for _, m := range all {
		b.write(topic, &outgoing{ctx: ctx, message: m, done: func(err error) { said <- err }})
	}
	for range all {
		select {
		case err := <-said:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// move has what a subscription has be in another topic, as it is.
func (b *Broker) move(ctx context.Context, from source, to string) error {
	for {
		there, err := b.admin.count(ctx, from.topic, from.subscription)
		if err != nil || there.Backlog == 0 {
			return err
		}
		if err := b.moveSome(ctx, from, to, there.Backlog); err != nil {
			return err
		}
	}
}

func (b *Broker) moveSome(ctx context.Context, from source, to string, n int64) error {
	consumer, err := b.client.Subscribe(pulsar.ConsumerOptions{
		Topic: from.topic, SubscriptionName: from.subscription, Type: pulsar.Exclusive, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		ReceiverQueueSize: 100, AckWithResponse: true, EnableBatchIndexAcknowledgment: true, BackOffPolicyFunc: newPatience,
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	r := &reading{b: b, s: &spot{dead: from.topic}, consumer: consumer, left: n}
	for {
		var all []*pulsar.ProducerMessage
		var ids []pulsar.MessageID
		for len(all) < actOnce {
			m, err := r.receive(ctx)
			if err != nil {
				return err
			}
			if m == nil {
				break
			}
			all, ids = append(all, asItIs(m)), append(ids, m.ID())
		}
		if len(all) == 0 {
			return nil
		}
		if err := b.writeAll(ctx, to, all); err != nil {
			return err
		}
		if err := consumer.AckIDList(ids); err != nil {
			return err
		}
	}
}

func asItIs(m pulsar.Message) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Payload: m.Payload(), Key: m.Key(), OrderingKey: m.OrderingKey(), Properties: m.Properties(), EventTime: m.EventTime()}
}
