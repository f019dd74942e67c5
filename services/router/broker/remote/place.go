package remote

import (
	"context"
	"encoding/json"
	"iter"
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
	live  int          // messages that are not settled

	declared     bool
	deadDeclared bool
	waiting      []func(err error) // for it to be
	failed       error             // and why it was not
	retryAt      time.Time

	demand broker.Demand
	made   Made
	taking Consumption
}

// declareAgain is how long a failed declaration stands.
const declareAgain = 500 * time.Millisecond

// Notes in the lane's ledger about places begin with placeNote and the broker's
// name, and are followed by the queue's.
const placeNote = "place/"

// noted is what a note says.
type noted struct {
	Made Made `json:"made,omitzero"`
}

func (s *Store) placeKey(queue string) string { return placeNote + s.host.Name + queueMark + queue }

const queueMark = "\n"

// readPlaces knows again what earlier owners used.
func (s *Store) readPlaces() {
	for key, value := range s.ledger.Notes() {
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
	}
}

func (s *Store) newPlace(queue string) (*place, error) {
	spot, err := s.side.Spot(queue)
	if err != nil {
		return nil, err
	}
	p := &place{queue: queue, spot: spot, ghost: ledger.Queue{Name: queue}}
	s.places[queue] = p
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

func (s *Store) note(p *place) {
	value, err := json.Marshal(noted{Made: p.made})
	if err == nil {
		err = s.ledger.PutNote(s.placeKey(p.queue), value, nil)
	}
	if err != nil {
		s.host.Log.Error("a queue cannot be noted", "queue", p.queue, "error", err)
	}
}

// Queues are those of this lane.
func (s *Store) Queues() iter.Seq2[string, []int64] {
	return func(yield func(string, []int64) bool) {
		for queue := range s.places {
			if !yield(queue, nil) {
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
// none what they said.
func (s *Store) make(p *place) Made {
	wanted := p.made
	wanted.Known = true
	if p.demand.Window > 0 {
		wanted.FIFO, wanted.MaxPriority = wanted.FIFO || p.demand.FIFO, p.demand.MaxPriority
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
	p.declared, p.failed, p.retryAt = err == nil, err, time.Now().Add(declareAgain)
	waiting := p.waiting
	p.waiting = nil
	for _, f := range waiting {
		f(err)
	}
}

// Demand takes as many messages of the queue as its consumers have room for.
func (s *Store) Demand(queue string, d broker.Demand) {
	p := s.places[queue]
	if p == nil && d.Window == 0 {
		return
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

// Bind has the queue receive a topic, again and again until it does.
func (s *Store) Bind(queue, topic string, done func()) {
	p, err := s.place(queue)
	if err != nil {
		s.host.Log.Error("a queue cannot be on the broker", "queue", queue, "error", err)
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
		p.taking.Receive(topic)
	}
}

func (s *Store) bind(p *place, done func()) {
	s.ensure(p, func(err error) {
		if err == nil || p.topic == "" {
			done()
			return
		}
		s.host.Log.Warn("a queue could not be bound to its topic and is tried again", "queue", p.queue, "error", err)
		s.after(declareAgain, func() { s.bind(p, done) })
	})
}

// Unbind ends that. What is published to the topic from now on waits until it has.
func (s *Store) Unbind(queue, topic string) {
	p := s.places[queue]
	if p == nil {
		return
	}
	p.receive("")
	at := s.unbinding[topic]
	if at == nil {
		at = &unbinding{}
		s.unbinding[topic] = at
	}
	at.queues++
	s.setup.Do(p.queue, func(ctx context.Context) {
		if err := p.spot.Unbind(ctx, topic); err != nil {
			s.host.Log.Warn("a queue could not be unbound from its topic", "queue", queue, "error", err)
		}
		s.post(func() { s.unbound(topic, at) })
	})
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

// Forget removes a queue with all it holds.
func (s *Store) Forget(queue string) {
	p := s.places[queue]
	if p == nil {
		return
	}
	delete(s.places, queue)
	if p.taking != nil {
		p.taking.Stop()
	}
	s.setup.Do(p.queue, func(ctx context.Context) {
		if p.taking != nil {
			p.taking.Wait()
		}
		err := p.spot.Remove(ctx)
		s.post(func() { s.forgotten(p, err) })
	})
}

func (s *Store) forgotten(p *place, err error) {
	if err != nil {
		s.host.Log.Warn("a queue could not be removed from the broker", "queue", p.queue, "error", err)
		return
	}
	if s.places[p.queue] != nil {
		return // it is used again
	}
	if err := s.ledger.PutNote(s.placeKey(p.queue), nil, nil); err != nil {
		s.host.Log.Error("a queue's note is not forgotten", "queue", p.queue, "code", protocol.CodeOf(err), "error", err)
	}
}
