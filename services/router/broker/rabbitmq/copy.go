//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
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
	ms   int64 // the delay; 0: none
	dead bool
	// tries counts those that failed: then where it goes is to be made sure of again,
	// and may have it already.
	tries int
	out   outgoing
}

// Retry copies the entry to the holding queue of its delay.
func (s *store) Retry(e *broker.Entry, meta broker.Meta) bool {
	return s.copy(e, &copying{meta: meta, ms: delay(&meta, time.Now())})
}

// DeadLetter copies it to the dead letters.
func (s *store) DeadLetter(e *broker.Entry, meta broker.Meta) bool {
	return s.copy(e, &copying{meta: meta, dead: true})
}

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

func (s *store) copy(e *broker.Entry, c *copying) bool {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return false
	}
	message, err := outward(v.message, &c.meta)
	if err != nil { // what the mesh added is too much: the message itself was taken once
		c.meta.Error, c.meta.Story, c.meta.Spans = "", nil, ""
		if message, err = outward(v.message, &c.meta); err != nil {
			s.b.log.Error("a message cannot be copied", "queue", v.place.queue, "message_id", e.ID, "error", err)
			return false
		}
	}
	message.Headers[headerCopy] = int64(v.ident.Copy) + 1
	if c.dead {
		message.Headers[headerQueue] = v.place.queue
	}
	v.leaving, c.v, c.out.message = true, v, message
	s.begin(c)
	return true
}

// begin writes the copy once the queue that takes it is there.
func (s *store) begin(c *copying) {
	c.out.done = func(err error) { s.post(func() { s.copied(c, err) }) }
	c.out.returned = false
	if c.ms > 0 {
		s.holds(c.v.place, c.ms)
	}
	s.setup.Do(c.v.place.queue, func(ctx context.Context) {
		if err := s.prepare(ctx, c); err != nil {
			c.out.done(err)
			return
		}
		s.copies.write(&c.out)
	})
}

// prepare makes sure of the queue that the copy goes to.
func (s *store) prepare(ctx context.Context, c *copying) error {
	p, n := c.v.place, c.v.place.names
	switch {
	case c.dead:
		c.out.target = target{s.b.deadExchange(), n.dead}
		return p.sure.of(n.dead, c.tries > 0, func() error { return s.b.declareDead(ctx, n) })
	case c.ms == 0:
		c.out.target = target{key: n.queue}
		return nil
	}
	queue, err := s.b.holding(n, c.ms)
	if err != nil {
		return err
	}
	c.out.target = target{key: queue}
	return p.sure.of(queue, c.tries > 0, func() error { return s.b.hold(ctx, n, queue, c.ms) })
}

// copied settles the original once the copy is safe. Until then it is tried
// again, unless the broker has the original back.
func (s *store) copied(c *copying, err error) {
	v := c.v
	switch {
	case err == nil:
		s.left(c)
	case v.lost:
		s.goesBack(v)
		s.lane.Lost(&v.entry)
	default:
		s.b.log.Warn("the copy of a message was not confirmed and is written again; the original stays", "queue", v.place.queue, "message_id", v.entry.ID, "error", err)
		c.tries++
		if c.ms > 0 && c.elsewhere(err) {
			c.ms++
		}
		s.after(copyAgain, func() { s.resume(c) })
	}
}

// elsewhere says whether the message had better wait in another holding queue:
// this one is not the mesh's, or does not work at all.
func (c *copying) elsewhere(err error) bool {
	_, conflict := errors.AsType[*ConflictError](err)
	return conflict || c.tries%giveUp == 0
}

// giveUp is how often a queue is tried.
const giveUp = 30

// left settles the original.
func (s *store) left(c *copying) {
	v := c.v
	switch {
	case !c.dead:
		s.comesBack(v, time.Duration(c.ms)*time.Millisecond)
	case c.tries > 0 || v.again:
		s.tidy(v.place)
	}
	s.settled(v)
}

// comesBack notes the copy, unless it is back already.
func (s *store) comesBack(v *live, delay time.Duration) {
	next := v.ident
	next.Copy++
	if s.idents[next] == nil && !s.finished.Has(next) {
		s.b.away.add(next, delay)
	}
}

// resume begins again, unless the original was lost meanwhile.
func (s *store) resume(c *copying) {
	if c.v.lost {
		s.goesBack(c.v)
		s.lane.Lost(&c.v.entry)
		return
	}
	s.begin(c)
}
