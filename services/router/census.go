package router

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
)

const (
	censusEvery = 5 * time.Second
	// censusShare: with many queues the pause is so many times what a look at all of
	// them took.
	censusShare = 10
)

// census is what brokers were last seen to hold of this router's queues. Gauges are
// told from it: whoever asks for them does not wait for a broker.
type census struct {
	seen atomic.Pointer[map[spot]sight] // replaced, and never changed
}

// spot is a queue on a broker.
type spot struct{ broker, queue string }

// sight is what was seen of it.
type sight struct {
	broker.Depth

	// fresh: it was there to be looked at the last time.
	fresh bool
	// ended is how many of its messages had come to an end; since when that has been
	// so while something was ready (Service.clock), 0: nothing was.
	ended uint64
	since int64
}

// of is what was seen of a queue; the zero value: nothing yet.
func (c *census) of(at spot) sight { return c.all()[at] }

func (c *census) all() map[spot]sight {
	if seen := c.seen.Load(); seen != nil {
		return *seen
	}
	return nil
}

// keepCensus looks at what brokers hold again and again.
func (s *Service) keepCensus(ctx context.Context) {
	for wait := censusEvery; mesh.Pause(ctx, wait); {
		began := time.Now()
		s.takeCensus(ctx)
		wait = max(censusEvery, censusShare*time.Since(began))
	}
}

// counted is a queue on a broker with how many of its messages have come to an end.
type counted struct {
	farQueue

	ended uint64
}

// takeCensus looks at each queue once. Of a broker that does not answer no other queue
// is looked at: what was seen of it before stays.
func (s *Service) takeCensus(ctx context.Context) {
	if !s.hasBrokers() {
		s.census.seen.Store(nil)
		return
	}
	lanes, err := gather(ctx, s, (*lane).countedFarQueues)
	if err != nil {
		return
	}
	var (
		mu     sync.Mutex
		silent sync.Map // ids of brokers
		looks  errgroup.Group
		before = s.census.all()
		now    = make(map[spot]sight)
	)
	looks.SetLimit(looksAtOnce)
	for _, queues := range lanes {
		for _, q := range queues {
			looks.Go(func() error {
				at := spot{q.id, q.queue}
				one := before[at]
				one.fresh = false
				if _, is := silent.Load(q.id); !is {
					if depth, err := q.within(ctx); err == nil {
						one = one.next(depth, q.ended, s.clock(time.Now()))
					} else {
						silent.Store(q.id, true)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				now[at] = one
				return nil
			})
		}
	}
	if looks.Wait() == nil && ctx.Err() == nil {
		s.census.seen.Store(&now)
	}
}

// next is what is seen after one.
func (one sight) next(depth broker.Depth, ended uint64, now int64) sight {
	since := int64(0)
	if depth.Ready > 0 {
		since = now
		if one.ended == ended {
			since = cmp.Or(one.since, now)
		}
	}
	return sight{Depth: depth, fresh: true, ended: ended, since: since}
}

// within is look that takes no longer than it may.
func (f *farQueue) within(ctx context.Context) (broker.Depth, error) {
	if err := f.Away(); err != nil {
		return broker.Depth{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return f.look(ctx)
}

// countedFarQueues are the lane's queues on brokers that keep messages.
func (l *lane) countedFarQueues() (all []counted) {
	for _, f := range l.farQueues(isCounted) {
		if f.Capabilities().TopicsOnly {
			continue
		}
		c := l.counters(f.queue)
		all = append(all, counted{f, c[ledger.Delivered] + c[ledger.Filtered] + c[ledger.Discarded]})
	}
	return all
}

// isCounted says whether a queue is in what is told of all: a diagnosis is not.
func isCounted(queue string) bool { return !scope.OfDiagnosis(queue) }

// farTotals are what brokers have of a lane's queues.
type farTotals struct {
	live                 int64 // delivered to the lane
	ready, waiting, dead int64
	stalled              time.Duration
	brokers              map[string]protocol.BrokerStats // by id
	holds                map[string]int64                // that are to be delivered, by queue
}

// totalFar adds up what was seen.
func (l *lane) totalFar() farTotals {
	t := farTotals{brokers: map[string]protocol.BrokerStats{}, holds: map[string]int64{}}
	for _, r := range l.remotes {
		for queue := range r.store.Queues() {
			if isCounted(queue) {
				live := int64(r.store.Live(queue))
				t.live += live
				t.holds[queue] += live
				t.add(l, r, queue)
			}
		}
	}
	return t
}

// add adds what was seen of a queue.
func (t *farTotals) add(l *lane, r *remote, queue string) {
	if r.leaving || r.can.TopicsOnly { // another has the same queue, or nothing is kept
		return
	}
	seen, on := l.s.census.of(spot{r.id, queue}), t.brokers[r.id]
	if !seen.fresh {
		on.Unknown++
	}
	on.Ready, on.Waiting, on.Dead = on.Ready+seen.Ready, on.Waiting+seen.Waiting, on.Dead+seen.Dead
	t.brokers[r.id] = on
	t.ready, t.waiting, t.dead = t.ready+seen.Ready, t.waiting+seen.Waiting, t.dead+seen.Dead
	t.holds[queue] += seen.Ready
	if seen.since > 0 {
		t.stalled = max(t.stalled, time.Duration(l.now-seen.since))
	}
}

// join adds what another lane has.
func (t *farTotals) join(o *farTotals) {
	t.live, t.ready, t.waiting, t.dead = t.live+o.live, t.ready+o.ready, t.waiting+o.waiting, t.dead+o.dead
	for id, b := range o.brokers {
		t.brokers[id] = t.brokers[id].Plus(b) // placement.gauges says whether it is up
	}
}
