package client

import (
	"context"
	"sync"
	"time"
)

// overseer watches the time of a worker's handlers, with one timer for all that
// run: it warns of one that has used most of its time, and no longer counts one
// that has used all of it.
type overseer struct {
	w *Worker

	mu    sync.Mutex
	first *Delivery // that runs
	timer *time.Timer
	at    time.Time // when the timer goes off; zero: it does not
}

// watched is a delivery as the overseer sees it.
type watched struct {
	ctx        context.Context
	prev, next *Delivery
	due        time.Time // what comes next: the warning, or the end of its time
	warned     bool
}

// add watches a delivery that has a limit, until remove.
func (o *overseer) add(ctx context.Context, d *Delivery) {
	if d.deadline.IsZero() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	d.watched = watched{ctx: ctx, next: o.first, due: d.deadline.Add(-d.limit / 5)}
	if o.first != nil {
		o.first.watched.prev = d
	}
	o.first = d
	o.wake(d.watched.due)
}

// remove does nothing to one that is not watched any more.
func (o *overseer) remove(d *Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unlink(d)
}

func (o *overseer) unlink(d *Delivery) {
	prev, next := d.watched.prev, d.watched.next
	switch {
	case prev != nil:
		prev.watched.next = next
	case o.first == d:
		o.first = next
	}
	if next != nil {
		next.watched.prev = prev
	}
	d.watched = watched{}
}

// wake has look called at that time, if it is not called sooner anyway. Mostly it
// is: of deliveries with one limit the oldest is the next.
func (o *overseer) wake(at time.Time) {
	if !o.at.IsZero() && !at.Before(o.at) {
		return
	}
	o.at = at
	if o.timer == nil {
		o.timer = time.AfterFunc(time.Until(at), o.look)
		return
	}
	o.timer.Reset(time.Until(at))
}

// look sees to those whose time has come.
func (o *overseer) look() {
	for _, one := range o.due(time.Now()) {
		if one.warned {
			o.w.uncount(one.d, true)
			continue
		}
		o.w.about(one.ctx, one.d).WarnContext(one.ctx, "a handler has used 80 % of its time limit; raise timeout_ms of its subscription (client.Timeout) if it needs longer",
			"of", o.w.source(), "limit", one.d.limit)
	}
}

// due are those whose time has come, as they are; it sets the timer for the next.
func (o *overseer) due(now time.Time) (all []dueDelivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at = time.Time{}
	var soonest time.Time
	for d := o.first; d != nil; {
		next := d.watched.next
		if !now.Before(d.watched.due) {
			all = append(all, dueDelivery{d, d.watched.ctx, d.watched.warned})
			if d.watched.warned {
				o.unlink(d)
				d = next
				continue
			}
			d.watched.warned, d.watched.due = true, d.deadline
		}
		if soonest.IsZero() || d.watched.due.Before(soonest) {
			soonest = d.watched.due
		}
		d = next
	}
	if !soonest.IsZero() {
		o.wake(soonest)
	}
	return all
}

type dueDelivery struct {
	d      *Delivery
	ctx    context.Context
	warned bool
}
