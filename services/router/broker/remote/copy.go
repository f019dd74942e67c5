package remote

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/services/router/broker"
)

const (
	// copyAgain is how long a copy waits that could not be written.
	copyAgain = time.Second
	// madeSure is how long a place that copies go to is known to be there.
	madeSure = time.Hour
	// giveUp is how often a place is tried.
	giveUp = 30
)

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
	if h, holds := v.place.spot.(Holding); holds && kind == Waiting {
		c.out.Delay = h.Delay(&meta, time.Now())
	}
	if err := s.encode(c); err != nil {
		s.host.Log.Error("a message cannot be copied", "queue", v.place.queue, "message_id", e.ID, "error", err)
		return false
	}
	v.leaving = true
	if v.lost { // nothing is written before the broker has delivered it again
		s.post(func() { s.resume(c) })
		return true
	}
	s.begin(c)
	return true
}

// encode makes the copy ready. What the mesh adds may be too much beside what the broker
// took once from a stranger: then that is left out first, and of the headers as many,
// beginning with the largest, as have to be.
func (s *Store) encode(c *copying) error {
	err := s.side.Encode(&c.out)
	if err == nil {
		return nil
	}
	c.meta.Error, c.meta.Story, c.meta.Spans = "", nil, ""
	var out []string
	for err = s.side.Encode(&c.out); err != nil && len(c.out.Message.Headers) > 0; err = s.side.Encode(&c.out) {
		name := largestHeader(c.out.Message)
		less := *c.out.Message
		less.Headers = maps.Clone(less.Headers)
		delete(less.Headers, name)
		c.out.Message, out = &less, append(out, name)
	}
	if len(out) > 0 && err == nil {
		s.host.Log.Warn("headers are left out of a message's copy: the broker takes no more", "queue", c.out.Queue, "message_id", c.v.entry.ID, "headers", out)
	}
	return err
}

func largestHeader(m *broker.Message) (largest string) {
	most := -1
	for name, values := range m.Headers {
		if n := len(name) + len(values[0]); n > most {
			largest, most = name, n
		}
	}
	return largest
}

// Leave implements broker.RemoteStore.
func (s *Store) Leave(e *broker.Entry, keep func(kept func()) bool) bool {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return false
	}
	v.leaving = true
	v.leaving = keep(func() { s.gone(v) })
	return v.leaving
}

// begin writes the copy once what takes it is there.
func (s *Store) begin(c *copying) {
	p := c.v.place
	if c.out.Delay > 0 {
		s.holds(p, c.out.Delay)
	}
	if c.out.Delay == 0 && c.out.Kind != Dead {
		s.side.Write(&c.out)
		return
	}
	s.setup.Do(p.queue, func(ctx context.Context) {
		if err := p.prepare(ctx, &c.out); err != nil {
			c.out.Done(err)
			return
		}
		s.side.Write(&c.out)
	})
}

// sure are the places beside a queue that copies go to, by their delay, and when they
// were made sure of. It is used in the queue's turn of the sequence.
type sure map[int64]time.Time

// ofDead is where dead letters go among these.
const ofDead int64 = -1

// prepare makes sure of where a copy goes, unless that was done and need not be done
// anew.
func (p *place) prepare(ctx context.Context, w *Writing) error {
	which := w.Delay
	if w.Kind == Dead {
		which = ofDead
	}
	if at, done := p.sure[which]; done && w.Tries == 0 && time.Since(at) < madeSure {
		return nil
	}
	err := p.establish(ctx, which)
	if err == nil {
		p.sure[which] = time.Now()
	}
	return err
}

func (p *place) establish(ctx context.Context, which int64) error {
	if h, holds := p.spot.(Holding); holds && which != ofDead {
		return h.EstablishHolding(ctx, which)
	}
	return p.spot.EstablishDead(ctx)
}

// copied settles the original once the copy is safe. Until then it is tried
// again, unless the broker has the original back.
func (s *Store) copied(c *copying, err error) {
	v := c.v
	switch {
	case err == nil:
		s.left(c)
	case v.lost:
		s.interrupted(c)
	default:
		s.host.Log.Warn("the copy of a message was not confirmed and is written again; the original stays", "queue", v.place.queue, "message_id", v.entry.ID, "error", err)
		c.out.Tries++
		if c.out.Delay > 0 && (errors.Is(err, ErrElsewhere) || c.out.Tries%giveUp == 0) {
			c.out.Delay++ // what is there is not the mesh's, or does not work at all
		}
		s.after(copyAgain, func() { s.resume(c) })
	}
}

// left settles the original.
func (s *Store) left(c *copying) {
	v := c.v
	switch {
	case c.out.Kind == Waiting:
		s.comesBack(v, time.Duration(c.out.Delay)*time.Millisecond)
	case c.out.Tries > 0 || v.again:
		s.tidy(v.place)
	}
	s.gone(v)
}

// gone settles the original of what is safe elsewhere.
func (s *Store) gone(v *live) {
	s.forget(v)
	s.drop(v)
	s.acknowledge(v, nil)
	v.entry.Decided = true
	s.lane.Left(&v.entry)
	s.lane.Handed(&v.entry)
}

// comesBack notes the copy, unless it is back already.
func (s *Store) comesBack(v *live, delay time.Duration) {
	next := v.ident
	next.Copy++
	if s.idents[next] == nil && !s.finished.Has(next) {
		s.host.Away.add(next, delay)
	}
}

// resume begins again, unless the original was lost meanwhile.
func (s *Store) resume(c *copying) {
	if c.v.lost {
		s.interrupted(c)
		return
	}
	s.begin(c)
}

// interrupted gives up a copy whose original the broker has back. Whether it has the
// copy too nobody knows. What its handler said is known: when the original comes again
// the same copy is written, and nothing is run.
func (s *Store) interrupted(c *copying) {
	v := c.v
	if v.own {
		s.interruptions.put(v.ident, c, interruptedSpan)
	} else {
		s.ledger.Count(v.place.queue, ledger.Superseded, 1)
	}
	s.goesBack(v)
	s.lane.Lost(&v.entry)
}

// interruptedSpan is for how long a broker may be away, and its messages be known
// again.
const interruptedSpan = 10 * time.Minute

// goesOn says whether a delivery is the original of a copy that was interrupted, and
// writes that.
func (s *Store) goesOn(v *live) bool {
	c, was := s.interruptions.get(v.ident)
	if !was || !v.own {
		return false
	}
	s.interruptions.remove(v.ident)
	if !s.copy(&v.entry, c.meta, c.out.Kind) {
		return false
	}
	s.lane.Leaves(&v.entry)
	return true
}

// tidyAfter is how soon dead letters are looked through.
const tidyAfter = time.Second

// tidy has the dead letters of a place looked through. A letter may have been written
// twice when a try failed, or the broker delivered its message again.
func (s *Store) tidy(p *place) {
	t, tidies := p.spot.(Tidying)
	if !tidies || p.tidying {
		return
	}
	p.tidying = true
	s.after(tidyAfter, func() {
		p.tidying = false
		if s.side.Away() != nil {
			s.tidy(p)
			return
		}
		s.host.Running.Go(func() {
			if err := t.Tidy(s.ctx); err != nil {
				s.host.Log.Warn("dead letters could not be looked through", "queue", p.queue, "error", err)
			}
		})
	})
}
