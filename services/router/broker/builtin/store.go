package builtin

import (
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Store is a lane's ledger seen as a broker.
type Store struct {
	ledger *ledger.Ledger
	lane   broker.Lane
	next   Next
	metas  []ledger.Meta // the ledger copies what it is given
}

// Publish accepts a message at attempt 1, for all its queues in one record.
func (s *Store) Publish(p broker.Publish) error {
	s.metas = s.metas[:0]
	if p.Topic == "" {
		s.metas = append(s.metas, ledger.Meta{Queue: p.Queue, Attempt: 1, Due: p.Due, Spans: p.Spans})
	}
	for _, to := range p.To {
		s.metas = append(s.metas, ledger.Meta{Queue: to.Queue, Attempt: 1, Due: max(p.Due, to.Due), Group: to.Group, Spans: p.Spans})
	}
	var dedup *ledger.Dedup
	if p.Dedup != "" {
		d := dedupOf(&p)
		dedup = &d
	}
	return s.ledger.Accept(p.Message, s.metas, dedup, p.Tag)
}

func dedupOf(p *broker.Publish) ledger.Dedup {
	if p.Topic != "" {
		return ledger.DedupOf(scope.TopicPrefix+p.Topic, p.Dedup)
	}
	return ledger.DedupOf(p.Queue, p.Dedup)
}

// Remembers says whether the publish would repeat another.
func (s *Store) Remembers(p broker.Publish) bool { return s.ledger.Remembers(dedupOf(&p)) }

// Demand does nothing: entries are here anyway.
func (s *Store) Demand(string, broker.Demand) {}

// Message is the entry's message if its body is in memory.
func (s *Store) Message(e *broker.Entry) *broker.Message { return s.ledger.Message(e) }

// Load reads messages by their places.
func (s *Store) Load(entries []*broker.Entry) { s.ledger.Load(entries...) }

// Meta is what is known of the entry without reading.
func (s *Store) Meta(e *broker.Entry) broker.Meta { return s.ledger.Meta(e) }

// Settle rides along with the next commit.
func (s *Store) Settle(e *broker.Entry, how broker.Counter) { s.ledger.Settle(e, how, nil) }

// awaited is the tag of a settlement that the lane waits for.
type awaited struct{}

// SettleNow does not wait for company.
func (s *Store) SettleNow(e *broker.Entry, how broker.Counter) { s.ledger.Settle(e, how, awaited{}) }

// Return restates meta.
func (s *Store) Return(e *broker.Entry, meta broker.Meta) bool {
	return s.ledger.Restate(e, meta, nil)
}

// Retry decides for the lane's retry ledger, where the message waits.
func (s *Store) Retry(e *broker.Entry, meta broker.Meta) bool {
	retry, _ := s.next(s.ledger.Name())
	return retry != "" && s.ledger.Decide(e, retry, meta, nil)
}

// DeadLetter decides for the lane's ledger of dead letters.
func (s *Store) DeadLetter(e *broker.Entry, meta broker.Meta) bool {
	_, dlq := s.next(s.ledger.Name())
	return dlq != "" && s.ledger.Decide(e, dlq, meta, nil)
}

// Committed passes a record that is in the log on to the lane.
func (s *Store) Committed(c *ledger.Commit) {
	switch c.Kind {
	case ledger.KindAccept:
		s.accepted(c)
	case ledger.KindRestate:
		s.lane.Returned(c.Entries[0])
	case ledger.KindDecide:
		s.lane.Left(c.Entries[0])
	case ledger.KindDone:
		s.lane.Handed(c.Entries[0])
	case ledger.KindSettle:
		if c.Tag != nil {
			s.lane.Settled(c.Entries[0])
		}
	case ledger.KindNote:
	}
}

// accepted answers the publisher, then offers the message: the order of the
// writes is not the order of their arrival, but nothing is gained by making
// the publisher wait for the dispatch.
func (s *Store) accepted(c *ledger.Commit) {
	if c.Tag != nil {
		s.lane.Stored(c.Tag, broker.Receipt{Seq: c.Seq, Duplicate: c.Duplicate, ID: c.ID})
	}
	if c.Duplicate {
		return
	}
	for _, e := range c.Entries {
		s.lane.Arrived(e, c.Message)
	}
}

// Loaded passes a message that was read on to the lane.
func (s *Store) Loaded(e *broker.Entry, m *broker.Message, err error) { s.lane.Read(e, m, err) }
