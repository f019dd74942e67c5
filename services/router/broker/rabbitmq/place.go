//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"encoding/json"
	"fmt"
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
	names names
	ghost ledger.Queue // what its entries say they are in
	topic string       // that it receives
	live  int          // messages that are not settled

	declared bool
	waiting  []func(err error) // for it to be
	failed   error             // and why it was not
	retryAt  time.Time

	demand  broker.Demand
	made    kind // what it was declared as, if it was
	taking  *consumption
	holding map[int64]struct{} // delays in milliseconds
	sure    sure

	tidying bool // its dead letters are about to be looked through
}

// declareAgain is how long a failed declaration stands.
const declareAgain = 500 * time.Millisecond

// noted is what a note says.
type noted struct {
	Made    kind    `json:"made,omitzero"`
	Holding []int64 `json:"holding,omitempty"` // ms
}

func (s *store) placeKey(queue string) string { return broker.PlaceNote(s.b.o.Name, queue) }

const queueMark = "\n"

// readPlaces knows again what earlier owners used.
func (s *store) readPlaces() {
	for key, value := range s.ledger.Notes() {
		queue, found := strings.CutPrefix(key, s.placeKey(""))
		if !found {
			continue
		}
		p, err := s.newPlace(queue)
		if err != nil {
			s.b.log.Error("a note about a queue names none", "queue", queue, "error", err)
			continue
		}
		var n noted
		if err := json.Unmarshal(value, &n); err != nil {
			s.b.log.Warn("a note about a queue cannot be read", "queue", queue, "error", err)
		}
		p.made = n.Made
		for _, ms := range n.Holding {
			p.holding[ms] = struct{}{}
		}
	}
}

func (s *store) newPlace(queue string) (*place, error) {
	n, err := s.b.namesOf(queue)
	if err != nil {
		return nil, err
	}
	p := &place{queue: queue, names: n, ghost: ledger.Queue{Name: queue}, holding: make(map[int64]struct{}), sure: make(sure)}
	s.places[queue] = p
	s.b.away.forget(queue)
	return p, nil
}

// place is that of a queue, noted when it is first used.
func (s *store) place(queue string) (*place, error) {
	if p := s.places[queue]; p != nil {
		return p, nil
	}
	p, err := s.newPlace(queue)
	if err == nil {
		s.note(p)
	}
	return p, err
}

func (s *store) note(p *place) {
	value, err := json.Marshal(noted{Made: p.made, Holding: slices.Sorted(maps.Keys(p.holding))})
	if err == nil {
		err = s.ledger.PutNote(s.placeKey(p.queue), value, nil)
	}
	if err != nil {
		s.b.log.Error("a queue cannot be noted", "queue", p.queue, "error", err)
	}
}

// holds notes that messages of a queue wait for a delay.
func (s *store) holds(p *place, ms int64) {
	if _, known := p.holding[ms]; !known {
		p.holding[ms] = struct{}{}
		s.note(p)
	}
}

// ensure calls f once the queue is there.
func (s *store) ensure(p *place, f func(err error)) {
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
		err := s.b.establish(ctx, p.names, made, topic)
		s.post(func() { s.established(p, err) })
	})
}

// make says what to declare the queue as: what it was made as, if it was. That
// cannot be changed.
func (s *store) make(p *place) kind {
	if !p.made.Known {
		p.made = kind{Known: true, FIFO: p.demand.FIFO, MaxPriority: p.demand.MaxPriority}
		if p.made.FIFO {
			p.made.MaxPriority = 0
		}
		s.note(p)
	}
	if most := p.demand.MaxPriority; most > 0 && !p.demand.FIFO && most != p.made.MaxPriority {
		s.b.conflicts.tell(s.b, &ConflictError{
			Queue: p.names.queue, Argument: argumentPriority,
			Text: fmt.Sprintf("it was made with %d, and %d is asked for: the mesh looks some messages ahead", p.made.MaxPriority, most),
		})
	}
	return p.made
}

// establish declares a queue, and binds it to its topic.
func (b *Broker) establish(ctx context.Context, n names, made kind, topic string) error {
	if err := b.declare(ctx, n, made); err != nil && !b.used(err) {
		return err
	}
	if topic == "" {
		return nil
	}
	return b.bind(ctx, n, topic)
}

func (s *store) established(p *place, err error) {
	p.declared, p.failed, p.retryAt = err == nil, err, time.Now().Add(declareAgain)
	waiting := p.waiting
	p.waiting = nil
	for _, f := range waiting {
		f(err)
	}
}

// Demand takes as many messages of the queue as its consumers have room for.
func (s *store) Demand(queue string, d broker.Demand) {
	p := s.places[queue]
	if p == nil && d.Window == 0 && !d.FIFO && d.MaxPriority == 0 {
		return // there is nothing to be known of it yet
	}
	p, err := s.place(queue)
	if err != nil {
		s.b.log.Error("a queue cannot be on the broker", "queue", queue, "error", err)
		return
	}
	p.demand = d
	if p.taking == nil && d.Window > 0 {
		s.take(p)
	}
	if p.taking != nil {
		p.taking.want(d)
	}
}

// take begins to consume a queue.
func (s *store) take(p *place) {
	ctx, cancel := context.WithCancel(s.ctx)
	c := &consumption{s: s, link: s.b.inbound(), place: p, cancel: cancel, demand: p.demand, made: s.make(p), topic: p.topic, changed: make(chan struct{}, 1)}
	p.taking = c
	s.b.running.Go(func() { c.run(ctx) })
}

// Bind has the queue receive a topic, again and again until it does.
func (s *store) Bind(queue, topic string, done func()) {
	p, err := s.place(queue)
	if err != nil {
		s.b.log.Error("a queue cannot be on the broker", "queue", queue, "error", err)
		done()
		return
	}
	p.receive(topic)
	s.bind(p, done)
}

// receive says what topic the queue is to receive.
func (p *place) receive(topic string) {
	p.topic, p.declared = topic, false
	if p.taking != nil {
		p.taking.receive(topic)
	}
}

func (s *store) bind(p *place, done func()) {
	s.ensure(p, func(err error) {
		if err == nil || p.topic == "" {
			done()
			return
		}
		s.b.log.Warn("a queue could not be bound to its topic and is tried again", "queue", p.queue, "error", err)
		s.after(declareAgain, func() { s.bind(p, done) })
	})
}

// Unbind ends that.
func (s *store) Unbind(queue, topic string) {
	p := s.places[queue]
	if p == nil {
		return
	}
	p.receive("")
	s.setup.Do(p.queue, func(ctx context.Context) {
		if err := s.b.unbind(ctx, p.names, topic); err != nil {
			s.b.log.Warn("a queue could not be unbound from its topic", "queue", queue, "error", err)
		}
	})
}

// Forget removes a queue with all it holds: first what would come back to it.
func (s *store) Forget(queue string) {
	p := s.places[queue]
	if p == nil {
		return
	}
	delete(s.places, queue)
	s.b.away.forget(queue)
	if p.taking != nil {
		p.taking.cancel()
	}
	all := make([]string, 0, len(p.holding)+2)
	for ms := range p.holding {
		if holding, err := s.b.holding(p.names, ms); err == nil {
			all = append(all, holding)
		}
	}
	all = append(all, p.names.queue, p.names.dead)
	s.setup.Do(p.queue, func(ctx context.Context) {
		err := s.b.remove(ctx, all...)
		s.post(func() { s.forgotten(p, err) })
	})
}

func (s *store) forgotten(p *place, err error) {
	if err != nil {
		s.b.log.Warn("a queue could not be removed from the broker", "queue", p.queue, "error", err)
		return
	}
	if s.places[p.queue] != nil {
		return // it is used again
	}
	if err := s.ledger.PutNote(s.placeKey(p.queue), nil, nil); err != nil {
		s.b.log.Error("a queue's note is not forgotten", "queue", p.queue, "code", protocol.CodeOf(err), "error", err)
	}
}
