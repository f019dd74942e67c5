package remote

import (
	"errors"
	"slices"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// publication is a publish on its way.
type publication struct {
	broker.Publish
	places []*place // that have to be there
	out    Writing
	meta   broker.Meta
	again  bool
}

// Remembers says whether a publish would repeat another.
func (s *Store) Remembers(p broker.Publish) bool { return s.dedups.Remembers(&p) }

// Publish writes a message to its queue, or to its topic.
func (s *Store) Publish(p broker.Publish) error {
	if err := s.side.Away(); err != nil {
		return err
	}
	if s.side.Backlog() > maxBacklog {
		return errOverload
	}
	to, err := s.placesOf(&p)
	if err != nil {
		return err
	}
	s.dedups.Resume(&p)
	x := &publication{Publish: p, places: to, meta: broker.Meta{Attempt: 1, Spans: p.Spans}}
	x.out = Writing{Kind: Fresh, Topic: p.Topic, Queue: p.Queue, Message: p.Message, Meta: &x.meta}
	x.out.Done = func(err error) { s.post(func() { s.written(x, err) }) }
	for _, at := range to { // what one queue of a topic makes of priorities holds for the others
		most := s.make(at).MaxPriority
		x.out.Made.MaxPriority, x.out.Plain = max(x.out.Made.MaxPriority, most), x.out.Plain || most == 0
	}
	if p.Topic == "" {
		x.out.Spot = to[0].spot
	} else {
		x.out.To = spotsOf(to)
	}
	if err := s.side.Encode(&x.out); err != nil {
		return err
	}
	if s.dedups.Repeats(&p, s.lane) {
		return nil
	}
	s.write(x)
	return nil
}

func (s *Store) placesOf(p *broker.Publish) ([]*place, error) {
	if p.Topic == "" {
		at, err := s.place(p.Queue)
		return []*place{at}, err
	}
	all := make([]*place, 0, len(p.To))
	for _, c := range p.To {
		at, err := s.place(c.Queue)
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return all, nil
}

func spotsOf(places []*place) []Spot {
	all := make([]Spot, len(places))
	for i, at := range places {
		all[i] = at.spot
	}
	return all
}

// write writes once the queues are there.
func (s *Store) write(x *publication) {
	if at := s.unbinding[x.Topic]; at != nil {
		at.waiting = append(at.waiting, x)
		return
	}
	if !slices.ContainsFunc(x.places, func(at *place) bool { return !at.declared }) {
		s.side.Write(&x.out)
		return
	}
	waits := len(x.places)
	var failed error
	ready := func(err error) {
		failed = errors.Join(failed, err)
		waits--
		switch {
		case waits > 0:
		case failed != nil:
			s.refuse(x, protocol.AsError(failed))
		default:
			s.side.Write(&x.out)
		}
	}
	for _, at := range x.places {
		s.ensure(at, ready)
	}
}

// written answers a publish.
func (s *Store) written(x *publication, err error) {
	switch {
	case err == nil:
		s.accepted(x)
	case errors.Is(err, ErrNowhere) && !x.again:
		x.again = true
		s.forgetDeclared(x)
		s.write(x)
	case errors.Is(err, ErrNowhere), errors.Is(err, ErrRefused):
		s.forgetDeclared(x)
		s.refuse(x, protocol.Errorf(protocol.CodeUnavailable, "the message for %s was not stored: %v; look at it on the broker, and publish again", x.name(), err))
	case errors.Is(err, ErrUnknown):
		s.dedups.Doubt(&x.Publish)
		s.refuse(x, protocol.Errorf(protocol.CodeUnavailable, "%v, and whether it was stored is not known: publish it again with the same %s", err, protocol.HeaderDedup))
	default:
		s.refuse(x, protocol.Errorf(protocol.CodeUnavailable, "the message was not stored (%v): publish it again", err))
	}
}

// forgetDeclared has the queues made anew before the next publish: somebody may
// have deleted them.
func (s *Store) forgetDeclared(x *publication) {
	for _, at := range x.places {
		at.declared = false
	}
}

func (x *publication) name() string {
	if x.Topic != "" {
		return "topic " + x.Topic
	}
	return x.out.Spot.Name()
}

func (s *Store) accepted(x *publication) {
	s.stored++
	if x.Topic == "" {
		s.ledger.Count(x.Queue, ledger.Published, 1)
	}
	for _, to := range x.To {
		s.ledger.Count(to.Queue, ledger.Published, 1)
	}
	r := broker.Receipt{Seq: s.stored, ID: x.Message.ID}
	s.lane.Stored(x.Tag, r)
	s.dedups.Stored(&x.Publish, r, s.lane)
}

func (s *Store) refuse(x *publication, err error) {
	s.lane.Refused(x.Tag, err)
	s.dedups.Refused(&x.Publish, err, s.lane)
}
