//go:build !no_pulsar

package pulsar

import (
	"context"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// side is what one lane has of the broker.
type side struct {
	b    *Broker
	ctx  context.Context //nolint:containedctx // the lane's life
	size atomic.Int64
}

var _ remote.Side = (*side)(nil)

// Away implements remote.Side.
func (s *side) Away() error { return s.b.Away() }

// Spot implements remote.Side.
func (s *side) Spot(queue string) (remote.Spot, error) { return s.b.spotOf(queue) }

// Encode implements remote.Side.
func (s *side) Encode(w *remote.Writing) (err error) {
	if _, err := s.b.topicOf(w); err != nil {
		return err
	}
	m, err := encode(w)
	if err != nil {
		return err
	}
	if size := sizeOf(m); size > s.b.largest {
		return protocol.Errorf(protocol.CodePayloadTooLarge, "the message takes %d bytes with its properties, more than the %d that the broker takes: send a reference to it", size, s.b.largest)
	}
	w.Encoded = m
	return nil
}

// topicOf is where a message goes.
func (b *Broker) topicOf(w *remote.Writing) (string, error) {
	at, one := w.Spot.(*spot)
	switch {
	case !one:
		return b.names.Format(scope.TopicName(w.Topic))
	case w.Kind == remote.Dead:
		return at.dead, nil
	}
	return at.topic, nil
}

// outgoingBytes is about what a message takes beside its body.
const outgoingBytes = 512

// Write implements remote.Side.
func (s *side) Write(w *remote.Writing) {
	m, _ := w.Encoded.(*pulsar.ProducerMessage)
	topic, err := s.b.topicOf(w)
	if err != nil {
		w.Done(err)
		return
	}
	size := int64(len(m.Payload) + outgoingBytes)
	s.size.Add(size)
	s.b.write(topic, &outgoing{ctx: s.ctx, message: m, done: func(err error) {
		s.size.Add(-size)
		if err == nil && !m.DeliverAt.IsZero() {
			s.b.waiting.add(topic, m.DeliverAt)
		}
		w.Done(err)
	}})
}

// Backlog implements remote.Side.
func (s *side) Backlog() int64 { return s.size.Load() }

// Take implements remote.Side.
func (s *side) Take(ctx context.Context, at remote.Spot, sink remote.Sink) remote.Consumption {
	c := &consumption{Taking: remote.NewTaking(ctx, s.b.log, at.Name()), b: s.b, sink: sink}
	c.spot, _ = at.(*spot)
	s.b.running.Go(func() { c.Run(c.once) })
	return c
}
