package remote

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// removal is a place that is forgotten, and is on the broker until that has removed it.
type removal struct {
	*place
	delays []int64
	wait   time.Duration // before it is tried again
}

// How long a removal that has failed is not tried again: at first, and at most.
const (
	removeAgain     = time.Second
	removeAgainMost = time.Minute
)

// Forget removes a queue with all it holds.
func (s *Store) Forget(queue string) {
	p := s.places[queue]
	if p == nil {
		return
	}
	s.host.Away.forget(queue)
	if p.taking != nil {
		p.taking.Stop()
	}
	s.noteAs(p, noted{Holding: p.delays(), Removed: true}) // for the next owner, if this one does not come to it
	s.remove(p)
}

// remove has the broker remove a place, again and again until it has or the queue is
// used again.
func (s *Store) remove(p *place) {
	delete(s.places, p.queue)
	r := &removal{place: p, delays: p.delays(), wait: removeAgain}
	s.removals[p.queue] = r
	s.tryRemoval(r)
}

func (s *Store) tryRemoval(r *removal) {
	if s.removals[r.queue] != r {
		return // it is used again
	}
	s.setup.Do(r.queue, func(ctx context.Context) {
		err := r.do(ctx)
		s.post(func() { s.removed(r, err) })
	})
}

// do removes first what would come back to the queue.
func (r *removal) do(ctx context.Context) (err error) {
	if r.taking != nil {
		r.taking.Wait()
	}
	if h, holds := r.spot.(Holding); holds {
		err = h.RemoveHoldings(ctx, r.delays)
	}
	return errors.Join(err, r.spot.Remove(ctx))
}

func (s *Store) removed(r *removal, err error) {
	if err != nil {
		s.host.Log.Warn("a queue could not be removed from the broker and is tried again", "queue", r.queue, "error", err)
		s.after(r.wait, func() { s.tryRemoval(r) })
		r.wait = min(2*r.wait, removeAgainMost)
		return
	}
	if s.removals[r.queue] != r {
		return
	}
	delete(s.removals, r.queue)
	if err := s.ledger.PutNote(s.placeKey(r.queue), nil, nil); err != nil {
		s.host.Log.Error("a queue's note is not forgotten", "queue", r.queue, "code", protocol.CodeOf(err), "error", err)
	}
}
