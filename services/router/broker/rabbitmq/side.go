//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"fmt"

	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// side is what one lane has of the broker.
type side struct {
	b      *Broker
	out    *writer // of publishes
	copies *writer // of what failed: a queue that takes nothing holds up neither's others
}

var (
	_ remote.Side   = (*side)(nil)
	_ remote.Fixing = (*side)(nil)
)

// newSide has its writers write until ctx ends.
func newSide(b *Broker, ctx context.Context) *side { //nolint:revive // the context is the lane's life
	s := &side{b: b, out: newWriter(b.out), copies: newWriter(b.out)}
	b.running.Go(func() { s.out.run(ctx) })
	b.running.Go(func() { s.copies.run(ctx) })
	return s
}

// Away implements remote.Side.
func (s *side) Away() error { return s.b.Away() }

// Spot implements remote.Side.
func (s *side) Spot(queue string) (remote.Spot, error) {
	n, err := s.b.namesOf(queue)
	return &spot{s.b, n}, err
}

// Encode implements remote.Side.
func (s *side) Encode(w *remote.Writing) error {
	if size := headersOf(w.Message, w.Meta); w.Kind == remote.Fresh && size > maxHeaders {
		return headersTooLong(size)
	}
	message, err := outward(w.Message, w.Meta)
	if err != nil {
		return err
	}
	if w.Copy > 0 {
		message.Headers[remote.HeaderCopy] = int64(w.Copy)
	}
	if w.Kind == remote.Dead {
		message.Headers[remote.HeaderQueue] = w.Queue
	}
	if w.Kind != remote.Fresh || w.Plain || w.Made.MaxPriority == 0 {
		s.b.rank(&message)
	}
	w.Encoded = &outgoing{message: message}
	return nil
}

// Write implements remote.Side.
func (s *side) Write(w *remote.Writing) {
	o, _ := w.Encoded.(*outgoing)
	o.done, o.returned = w.Done, false
	if err := s.address(w, o); err != nil {
		o.done(err)
		return
	}
	if w.Kind == remote.Fresh {
		s.out.write(o)
	} else {
		s.copies.write(o)
	}
}

// address says where a message is written to.
func (s *side) address(w *remote.Writing, o *outgoing) (err error) {
	at, _ := w.Spot.(*spot)
	switch {
	case at == nil:
		o.exchange, _, err = s.b.exchanges(w.Topic)
		o.queues = make([]string, 0, len(w.To))
		for _, to := range w.To {
			o.queues = append(o.queues, to.Name())
		}
	case w.Kind == remote.Dead:
		o.target = target{s.b.deadExchange(), at.dead}
	case w.Delay > 0:
		o.key, err = s.b.holding(at.names, w.Delay)
	default:
		o.key = at.queue
	}
	return err
}

// Backlog implements remote.Side.
func (s *side) Backlog() int64 { return s.out.backlog() }

// Take implements remote.Side.
func (s *side) Take(ctx context.Context, at remote.Spot, sink remote.Sink) remote.Consumption {
	c := &consumption{b: s.b, link: s.b.inbound(), sink: sink, ended: make(chan struct{}), changed: make(chan struct{}, 1), rests: make(chan chan<- bool)}
	c.spot, _ = at.(*spot)
	ctx, c.cancel = context.WithCancel(ctx)
	s.b.running.Go(func() { c.run(ctx) })
	return c
}

// Differs implements remote.Fixing.
func (s *side) Differs(at remote.Spot, made remote.Made, d broker.Demand) {
	if d.MaxPriority == 0 || d.FIFO || d.MaxPriority == made.MaxPriority {
		return
	}
	s.b.conflicts.tell(s.b, &ConflictError{
		Queue: at.Name(), Argument: argumentPriority,
		Text: fmt.Sprintf("it was made with %d, and %d is asked for: the mesh looks some messages ahead", made.MaxPriority, d.MaxPriority),
	})
}
