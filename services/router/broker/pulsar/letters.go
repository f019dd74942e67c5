//go:build !no_pulsar

package pulsar

import (
	"context"
	"errors"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

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
	x, mark := b.sessions.Of(s.topic), uint64(0)
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
		return broker.Depth{}, b.Failed("the topic "+s.topic+" could not be looked at", err)
	}
	held := int64(0)
	if x != nil {
		held = x.holds(mark)
	}
	there := max(0, own.Backlog+received.Backlog-held)
	waiting := min(max(own.Delayed, b.waiting.count(s.topic)), own.Backlog, there)
	return broker.Depth{Ready: there - waiting, Waiting: waiting, Dead: dead.Backlog}, nil
}

// Browse reads the oldest dead letters: they are taken without being settled and
// given back in their order.
func (b *Broker) Browse(ctx context.Context, queue string, most int, id protocol.MessageID) (letters []broker.Letter, err error) {
	err = b.letters(ctx, queue, func(r *reading) (err error) {
		letters, err = remote.Browse(ctx, r, queue, r.s.dead, most, id)
		return err
	})
	return letters, err
}

// Act redrives or discards dead letters.
func (b *Broker) Act(ctx context.Context, queue string, a broker.Action) (acted int64, err error) {
	err = b.letters(ctx, queue, func(r *reading) (err error) {
		acted, err = remote.Act(ctx, r, a)
		return err
	})
	return acted, err
}

// reading takes the messages that a subscription had when it began, one consumer at
// a time.
type reading struct {
	b        *Broker
	s        *spot
	consumer pulsar.Consumer
	left     int64                       // that were not taken yet
	ids      map[string]pulsar.MessageID // of those that were, by their tags
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
		return b.Failed("the dead letters in "+s.dead+" could not be counted", err)
	}
	if there.Backlog == 0 {
		return nil
	}
	consumer, err := b.client.Subscribe(pulsar.ConsumerOptions{
		Topic: s.dead, SubscriptionName: subscription, Type: pulsar.Exclusive, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		ReceiverQueueSize: 100, AckWithResponse: true, EnableBatchIndexAcknowledgment: true, BackOffPolicyFunc: newPatience,
	})
	if err != nil {
		return b.Failed("the dead letters in "+s.dead+" could not be read", err)
	}
	defer consumer.Close()
	return f(&reading{b: b, s: s, consumer: consumer, left: there.Backlog, ids: make(map[string]pulsar.MessageID)})
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
	return m, r.b.Failed("the dead letters in "+r.s.dead+" could not be read", err)
}

// Next implements remote.Reading.
func (r *reading) Next(ctx context.Context) (*remote.Delivery, error) {
	m, err := r.receive(ctx)
	if m == nil {
		return nil, err
	}
	d := decode(m)
	r.ids[d.Tag] = m.ID()
	return &d, nil
}

// Redrive implements remote.Reading.
func (r *reading) Redrive(ctx context.Context, all []*remote.Writing) error {
	if err := r.s.Establish(ctx, remote.Made{}, ""); err != nil {
		return err
	}
	messages := make([]*pulsar.ProducerMessage, len(all))
	for i, w := range all {
		w.Spot = r.s
		var err error
		if messages[i], err = encode(w); err != nil {
			return err
		}
	}
	return r.b.Failed("dead letters of "+r.s.topic+" could not be redriven, and stay", r.b.writeAll(ctx, r.s.topic, messages))
}

// Settle implements remote.Reading.
func (r *reading) Settle(all []*remote.Delivery) error {
	ids := make([]pulsar.MessageID, len(all))
	for i, d := range all {
		ids[i] = r.ids[d.Tag]
		delete(r.ids, d.Tag)
	}
	return r.b.Failed("dead letters in "+r.s.dead+" could not be settled", r.consumer.AckIDList(ids))
}

// writeAll returns when the broker has all messages.
func (b *Broker) writeAll(ctx context.Context, topic string, all []*pulsar.ProducerMessage) error {
	said := make(chan error, len(all))
	for _, m := range all {
		b.write(topic, &outgoing{ctx: ctx, message: m, done: func(err error) { said <- err }})
	}
	return remote.Confirmed(ctx, len(all), said)
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
		for len(all) < remote.ActOnce {
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
