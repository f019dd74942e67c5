//go:build !no_pulsar

package pulsar

import (
	"context"
	"errors"

	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// subscription is the one that a queue's topic has, and the topic of its dead
// letters.
const subscription = "waybill"

// spot is a queue on the broker.
type spot struct {
	b     *Broker
	topic string // its own
	dead  string // that of its dead letters
	from  source // that of the topic that an observer's or a group's receives
}

// source is a topic's subscription.
type source struct{ topic, subscription string }

func (s source) some() bool { return s.topic != "" }

var _ remote.Spot = (*spot)(nil)

// spotOf is that of a queue with that ledger name.
func (b *Broker) spotOf(queue string) (*spot, error) {
	n, err := scope.Ledger{}.Parse(queue)
	if err != nil {
		return nil, err
	}
	s := &spot{b: b}
	if s.topic, err = b.names.Format(n); err != nil {
		return nil, err
	}
	if s.dead, err = b.names.Format(n.DeadLetters()); err != nil {
		return nil, err
	}
	switch n.Kind {
	case scope.KindObserver:
		s.from.subscription = "observer:" + n.Member
	case scope.KindGroup:
		s.from.subscription = "@" + n.Member
	default:
		return s, nil
	}
	s.from.topic, err = b.names.Format(scope.TopicName(n.Topic))
	return s, err
}

// own is where its own messages come from.
func (s *spot) own() source { return source{s.topic, subscription} }

// Name implements remote.Spot.
func (s *spot) Name() string { return s.topic }

// Establish implements remote.Spot. What receives a topic begins with what is
// published from then on.
func (s *spot) Establish(ctx context.Context, _ remote.Made, topic string) error {
	if err := s.b.establish(ctx, s.own(), earliest); err != nil || topic == "" || !s.from.some() {
		return err
	}
	return s.b.establish(ctx, s.from, latest)
}

// EstablishDead implements remote.Spot.
func (s *spot) EstablishDead(ctx context.Context) error {
	return s.b.establish(ctx, source{s.dead, subscription}, earliest)
}

// establish makes a topic and its subscription: without one what is published to it
// would be confirmed, and be gone. Whoever makes a subscription that another makes too
// sets it back to where it begins.
func (b *Broker) establish(ctx context.Context, at source, from position) error {
	defer b.making.Take(at.topic + " " + at.subscription)()
	err := errNotThere
	if _, known := b.made.Load(at.topic); known {
		err = b.admin.subscribe(ctx, at.topic, at.subscription, from)
	}
	if errors.Is(err, errNotThere) {
		err = b.admin.makeTopic(ctx, at.topic)
		if err == nil {
			err = b.admin.subscribe(ctx, at.topic, at.subscription, from)
		}
	}
	if err == nil {
		b.made.Store(at.topic, true)
	}
	return b.Failed("the topic "+at.topic+" could not be made", err)
}

// Unbind implements remote.Spot: what was received and is not handled yet goes
// into the queue's own topic.
func (s *spot) Unbind(ctx context.Context, _ string) error {
	if !s.from.some() {
		return nil
	}
	defer s.b.receiving.Take(s.topic)() // until nobody consumes it
	err := s.b.move(ctx, s.from, s.topic)
	if err == nil {
		err = s.b.admin.unsubscribe(ctx, s.from.topic, s.from.subscription)
	}
	return s.b.Failed("the subscription "+s.from.subscription+" of "+s.from.topic+" could not be ended", err)
}

// Remove implements remote.Spot.
func (s *spot) Remove(ctx context.Context) error {
	if s.from.some() {
		if err := s.b.admin.unsubscribe(ctx, s.from.topic, s.from.subscription); err != nil {
			return s.b.Failed("the subscription "+s.from.subscription+" of "+s.from.topic+" could not be removed", err)
		}
	}
	for _, topic := range []string{s.topic, s.dead} {
		s.b.writers.leave(topic) // it would make the topic again
		s.b.waiting.forget(topic)
		s.b.made.Delete(topic)
		if err := s.b.admin.removeTopic(ctx, topic); err != nil {
			return s.b.Failed("the topic "+topic+" could not be removed", err)
		}
	}
	return nil
}
