//go:build !no_artemis

package artemis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// side is what one lane has of the broker: a connection on which it sends, and
// one on which it consumes, so that a message that the broker does not like ends
// no delivery. Each is made when it is first needed.
type side struct {
	b       *Broker
	ctx     context.Context //nolint:containedctx // the lane's life
	out, in *link
	size    atomic.Int64

	mu     sync.Mutex
	taking int           // consumptions
	left   chan struct{} // closed when there are none any more
}

var _ remote.Side = (*side)(nil)

func newSide(b *Broker, ctx context.Context) *side { //nolint:revive // it keeps the context
	s := &side{b: b, ctx: ctx, out: newLink(b, "publish"), in: newLink(b, "consume")}
	s.in.finish = s.finish
	return s
}

// finish has all consumptions take leave: the broker finds fault with who does so
// after the connection has.
func (s *side) finish() {
	s.mu.Lock()
	if s.taking == 0 {
		s.mu.Unlock()
		return
	}
	left := make(chan struct{})
	s.left = left
	s.mu.Unlock()
	select {
	case <-left:
	case <-time.After(dialTimeout):
	}
}

func (s *side) begins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking++
}

func (s *side) ends() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking--
	if s.taking == 0 && s.left != nil {
		close(s.left)
		s.left = nil
	}
}

// Away implements remote.Side.
func (s *side) Away() error { return s.b.Away() }

// Spot implements remote.Side.
func (s *side) Spot(queue string) (remote.Spot, error) { return s.b.spotOf(queue) }

// Encode implements remote.Side.
func (s *side) Encode(w *remote.Writing) (err error) {
	w.Encoded, err = encode(s.b, w)
	return err
}

// outgoingBytes is about what a message takes beside its body.
const outgoingBytes = 512

// Write implements remote.Side.
func (s *side) Write(w *remote.Writing) {
	f, _ := w.Encoded.(*frame.Frame)
	size := int64(len(f.Body) + outgoingBytes)
	s.size.Add(size)
	s.out.start(s.ctx)
	s.out.send(f, func(err error) {
		s.size.Add(-size)
		s.b.counting.confirm(addressOf(w))
		w.Done(err)
	})
}

// addressOf is the queue that a message is for, none if it is for a topic's.
func addressOf(w *remote.Writing) string {
	at, one := w.Spot.(*spot)
	switch {
	case !one:
		return ""
	case w.Kind == remote.Dead:
		return at.deadletter
	}
	return at.address
}

// Backlog implements remote.Side.
func (s *side) Backlog() int64 { return s.size.Load() }

// Take implements remote.Side.
func (s *side) Take(ctx context.Context, at remote.Spot, sink remote.Sink) remote.Consumption {
	c := &consumption{Taking: remote.NewTaking(ctx, s.b.log, at.Name()), side: s, sink: sink}
	c.spot, _ = at.(*spot)
	s.in.start(s.ctx)
	s.begins()
	s.b.running.Go(func() {
		defer s.ends()
		c.Run(c.once)
	})
	return c
}
