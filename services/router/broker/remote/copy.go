package remote

import (
	"context"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// copyAgain is how long a copy waits that could not be written.
const copyAgain = time.Second

// copying is a copy of a message on its way to where it waits or is dead. The
// original stays until it is confirmed.
type copying struct {
	v    *live
	meta broker.Meta
	out  Writing
}

// Retry copies the entry to where it waits until it is due.
func (s *Store) Retry(e *broker.Entry, meta broker.Meta) bool { return s.copy(e, meta, Waiting) }

// DeadLetter copies it to the dead letters.
func (s *Store) DeadLetter(e *broker.Entry, meta broker.Meta) bool { return s.copy(e, meta, Dead) }

func (s *Store) copy(e *broker.Entry, meta broker.Meta, kind Kind) bool {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return false
	}
	c := &copying{v: v, meta: meta}
	c.out = Writing{
		Kind: kind, Spot: v.place.spot, Queue: v.place.queue, Made: v.place.made, Message: v.message, Meta: &c.meta, Copy: v.ident.Copy + 1,
		Done: func(err error) { s.post(func() { s.copied(c, err) }) },
	}
	if err := s.side.Encode(&c.out); err != nil { // what the mesh added is too much: the message itself was taken once
		c.meta.Error, c.meta.Story, c.meta.Spans = "", nil, ""
		if err = s.side.Encode(&c.out); err != nil {
			s.host.Log.Error("a message cannot be copied", "queue", v.place.queue, "message_id", e.ID, "error", err)
			return false
		}
	}
	v.leaving = true
	s.begin(c)
	return true
}

// Leave implements broker.RemoteStore.
func (s *Store) Leave(e *broker.Entry, keep func(kept func()) bool) bool {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return false
	}
	v.leaving = true
	v.leaving = keep(func() { s.left(v) })
	return v.leaving
}

// left settles the original of what is safe elsewhere.
func (s *Store) left(v *live) {
	s.forget(v)
	s.drop(v)
	s.acknowledge(v, nil)
	v.entry.Decided = true
	s.lane.Left(&v.entry)
	s.lane.Handed(&v.entry)
}

// begin writes the copy once what takes it is there.
func (s *Store) begin(c *copying) {
	if c.out.Kind != Dead || c.v.place.deadDeclared {
		s.side.Write(&c.out)
		return
	}
	s.setup.Do(c.v.place.queue, func(ctx context.Context) {
		if err := c.out.Spot.EstablishDead(ctx); err != nil {
			c.out.Done(err)
			return
		}
		s.side.Write(&c.out)
	})
}

// copied settles the original once the copy is safe. Until then it is tried
// again, unless the broker has the original back.
func (s *Store) copied(c *copying, err error) {
	v := c.v
	switch {
	case err == nil:
		v.place.deadDeclared = v.place.deadDeclared || c.out.Kind == Dead
		s.left(v)
	case v.lost:
		s.forget(v)
		s.lane.Lost(&v.entry)
	default:
		v.place.deadDeclared = false
		s.host.Log.Warn("the copy of a message was not confirmed and is written again; the original stays", "queue", v.place.queue, "message_id", v.entry.ID, "error", err)
		s.after(copyAgain, func() { s.resume(c) })
	}
}

// resume begins again, unless the original was lost meanwhile.
func (s *Store) resume(c *copying) {
	if c.v.lost {
		s.forget(c.v)
		s.lane.Lost(&c.v.entry)
		return
	}
	s.begin(c)
}
