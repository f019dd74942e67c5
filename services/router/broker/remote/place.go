package remote

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// place is one queue of the lane on the broker.
type place struct {
	queue string // its ledger name
	spot  Spot
	ghost ledger.Queue // what its entries say they are in
	topic string       // that it receives
	left  string       // that it is bound to still, and is not to receive
	live  int          // messages that are not settled

	declared bool
	waiting  []func(err error) // for it to be
	failed   error             // and why it was not
	retryAt  time.Time

	demand broker.Demand
	made   Made
	taking Consumption
	came   int // how many deliveries, since this owner of the lane began

	holding map[int64]struct{} // delays for which messages wait, in milliseconds
	sure    sure
	tidying bool // its dead letters are about to be looked through
}

// declareAgain is how long a failed declaration stands, and refusedAgain one of a queue
// that the broker has and that cannot be used.
const (
	declareAgain = 500 * time.Millisecond
	refusedAgain = 3 * time.Second
)

// noted is what a note says.
type noted struct {
	Made    Made    `json:"made,omitzero"`
	Holding []int64 `json:"holding,omitempty"` // ms
	Removed bool    `json:"removed,omitempty"` // it is to be, with all it holds
	Left    string  `json:"left,omitempty"`    // the topic that it is to be unbound from
}

func (s *Store) placeKey(queue string) string { return broker.PlaceNote(s.host.Name, queue) }

// readPlaces knows again what earlier owners used.
func (s *Store) readPlaces() {
	for key, value := range s.ledger.Notes() {
		if strings.HasPrefix(key, broker.KeptNote(s.host.Name, "")) {
			s.keeps = true
		}
		queue, found := strings.CutPrefix(key, s.placeKey(""))
		if !found {
			continue
		}
		p, err := s.newPlace(queue)
		if err != nil {
			s.host.Log.Error("a note about a queue names none", "queue", queue, "error", err)
			continue
		}
		var n noted
		if err := json.Unmarshal(value, &n); err != nil {
			s.host.Log.Warn("a note about a queue cannot be read", "queue", queue, "error", err)
		}
		p.made = n.Made
		for _, ms := range n.Holding {
			p.holding[ms] = struct{}{}
		}
		switch {
		case n.Removed:
			s.remove(p)
		case n.Left != "":
			p.left = n.Left
			s.unbind(p, n.Left)
		}
	}
}

func (s *Store) newPlace(queue string) (*place, error) {
	spot, err := s.side.Spot(queue)
	if err != nil {
		return nil, err
	}
	p := &place{queue: queue, spot: spot, ghost: ledger.Queue{Name: queue}, holding: make(map[int64]struct{}), sure: make(sure)}
	s.places[queue] = p
	delete(s.removals, queue)
	s.host.Away.forget(queue)
	return p, nil
}

// place is that of a queue, noted when it is first used.
func (s *Store) place(queue string) (*place, error) {
	if p := s.places[queue]; p != nil {
		return p, nil
	}
	p, err := s.newPlace(queue)
	if err == nil {
		s.note(p)
	}
	return p, err
}

func (s *Store) note(p *place) { s.noteAs(p, noted{Made: p.made, Holding: p.delays(), Left: p.left}) }

func (s *Store) noteAs(p *place, n noted) {
	value, err := json.Marshal(n)
	if err == nil {
		err = s.ledger.PutNote(s.placeKey(p.queue), value, nil)
	}
	if err != nil {
		s.host.Log.Error("a queue cannot be noted", "queue", p.queue, "error", err)
	}
}

func (p *place) delays() []int64 { return slices.Sorted(maps.Keys(p.holding)) }

// holds notes that messages of a queue wait for a delay.
func (s *Store) holds(p *place, ms int64) {
	if _, known := p.holding[ms]; !known {
		p.holding[ms] = struct{}{}
		s.note(p)
	}
}

// Queues are those of this lane.
func (s *Store) Queues() iter.Seq2[string, []int64] {
	return func(yield func(string, []int64) bool) {
		for queue, p := range s.places {
			if !yield(queue, p.delays()) {
				return
			}
		}
	}
}

// Has says whether the lane has used the queue.
func (s *Store) Has(queue string) bool { return s.places[queue] != nil }

// ensure calls f once the queue is there.
func (s *Store) ensure(p *place, f func(err error)) {
	switch {
	case p.declared:
		f(nil)
		return
	case p.failed != nil && time.Now().Before(p.retryAt):
		f(p.failed)
		return
	}
	p.waiting = append(p.waiting, f)
	if len(p.waiting) > 1 {
		return
	}
	made, topic := s.make(p), p.topic
	s.setup.Do(p.queue, func(ctx context.Context) {
		err := p.spot.Establish(ctx, made, topic)
		s.post(func() { s.established(p, err) })
	})
}

// make says what the queue is to be: what its consumers say, and while there are
// none what they said. What cannot be changed stays as it was made.
func (s *Store) make(p *place) Made {
	if f, fixed := s.side.(Fixing); fixed && p.made.Known {
		f.Differs(p.spot, p.made, p.demand)
		return p.made
	}
	wanted := p.made
	wanted.Known, wanted.FIFO = true, wanted.FIFO || p.demand.FIFO
	if p.demand.Window > 0 || p.demand.MaxPriority > 0 {
		wanted.MaxPriority = p.demand.MaxPriority
	}
	if wanted.FIFO {
		wanted.MaxPriority = 0
	}
	if wanted != p.made {
		p.declared = p.declared && wanted.FIFO == p.made.FIFO
		p.made = wanted
		s.note(p)
	}
	return p.made
}

func (s *Store) established(p *place, err error) {
	p.declared, p.failed, p.retryAt = err == nil, err, time.Now().Add(againAfter(err))
	waiting := p.waiting
	p.waiting = nil
	for _, f := range waiting {
		f(err)
	}
}

func againAfter(err error) time.Duration {
	if protocol.CodeOf(err) == protocol.CodeConflict {
		return refusedAgain
	}
	return declareAgain
}

// Demand takes as many messages of the queue as its consumers have room for.
func (s *Store) Demand(queue string, d broker.Demand) {
	p := s.places[queue]
	if p == nil && d == (broker.Demand{}) {
		return // there is nothing to be known of it yet
	}
	p, err := s.place(queue)
	if err != nil {
		s.host.Log.Error("a queue cannot be on the broker", "queue", queue, "error", err)
		return
	}
	p.demand = d
	if p.taking == nil {
		if d.Window == 0 {
			return
		}
		p.taking = s.side.Take(s.ctx, p.spot, sink{s, p})
		p.taking.Receive(p.topic)
	}
	p.taking.Want(d, s.make(p))
}

// restWait is how long a consumption may take to rest.
const restWait = 5 * time.Second

// Rest has nothing more of the queue be taken, and says in the lane's goroutine when
// nothing more comes, and whether nothing has come or gone back meanwhile.
func (s *Store) Rest(queue string, done func(still bool)) {
	p := s.places[queue]
	if p == nil || p.taking == nil {
		s.post(func() { done(true) })
		return
	}
	s.Demand(queue, broker.Demand{FIFO: p.demand.FIFO, MaxPriority: p.demand.MaxPriority})
	came, taking := p.came, p.taking
	s.host.Running.Go(func() {
		still := true
		if r, rests := taking.(Resting); rests {
			ctx, cancel := context.WithTimeout(s.ctx, restWait)
			defer cancel()
			still = r.Rest(ctx)
		}
		s.post(func() { done(still && p.came == came) })
	})
}

// Bind has the queue receive a topic, again and again until it does. Nobody waits for
// a queue that cannot be used: what is published to its topic is refused.
func (s *Store) Bind(queue, topic string, done func()) {
	p, err := s.place(queue)
	if err != nil {
		s.host.Log.Error("a queue cannot be on the broker", "queue", queue, "error", err)
		done()
		return
	}
	p.receive(topic)
	s.leaves(p, "")
	s.bind(p, done)
}

// leaves notes the topic that a queue is to be unbound from, for the next owner, if
// this one does not come to it; empty: none.
func (s *Store) leaves(p *place, topic string) {
	if p.left != topic {
		p.left = topic
		s.note(p)
	}
}

// receive says what topic the queue is to receive.
func (p *place) receive(topic string) {
	p.topic, p.declared = topic, false
	if p.taking != nil {
		p.taking.Receive(topic)
	}
}

func (s *Store) bind(p *place, done func()) {
	s.ensure(p, func(err error) {
		if err == nil || p.topic == "" {
			done()
			return
		}
		if protocol.CodeOf(err) == protocol.CodeConflict {
			done()
			done = func() {}
		} else {
			s.host.Log.Warn("a queue could not be bound to its topic and is tried again", "queue", p.queue, "error", err)
		}
		s.after(againAfter(err), func() { s.bind(p, done) })
	})
}

// Unbind ends that. What is published to the topic from now on waits until it has.
func (s *Store) Unbind(queue, topic string) {
	p := s.places[queue]
	if p == nil {
		return
	}
	p.receive("")
	s.leaves(p, topic)
	s.unbind(p, topic)
}

func (s *Store) unbind(p *place, topic string) {
	at := s.unbinding[topic]
	if at == nil {
		at = &unbinding{}
		s.unbinding[topic] = at
	}
	at.queues++
	s.setup.Do(p.queue, func(ctx context.Context) {
		err := p.spot.Unbind(ctx, topic)
		s.post(func() {
			s.unbound(topic, at)
			switch {
			case s.places[p.queue] != p || p.left != topic: // it is gone, or bound again
			case err == nil:
				s.leaves(p, "")
			default:
				s.host.Log.Warn("a queue could not be unbound from its topic and is tried again", "queue", p.queue, "error", err)
				s.after(unbindAgain, func() { s.stillBound(p, topic) })
			}
		})
	})
}

// unbindAgain is how long an unbinding that has failed is not tried again.
const unbindAgain = 5 * time.Second

func (s *Store) stillBound(p *place, topic string) {
	if s.places[p.queue] == p && p.left == topic {
		s.unbind(p, topic)
	}
}

// unbinding is a topic that queues are leaving.
type unbinding struct {
	queues  int
	waiting []*publication
}

func (s *Store) unbound(topic string, at *unbinding) {
	at.queues--
	if at.queues > 0 {
		return
	}
	delete(s.unbinding, topic)
	for _, x := range at.waiting {
		s.write(x)
	}
}
