package ledger

import (
	"bytes"
	"context"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Trail is what the log of a service has of one entry.
type Trail struct {
	Ledger   string
	Key      Key
	Message  *Message
	Meta     Meta  // the newest
	Accepted int64 // ns since the epoch; 0: before what the log has
	Dest     string
	Decided  int64   // that it goes to Dest; 0: before what the log has, or not
	Ended    int64   // settled, or handed over; 0: not
	How      Counter // that counts the settlement; 0: not said
	By       Worker  // who settled it; the zero value: not known
	Took     time.Duration
}

// Live says whether the entry is the ledger's still.
func (t *Trail) Live() bool { return t.Ended == 0 }

// Search reads a service's whole log, which its owners go on writing, for a
// message, and says since when the log has everything: what ended before that
// may be in it no more. It reads one message of the log after the other and
// takes its time.
func Search(ctx context.Context, conn *nats.Conn, service string, id protocol.MessageID) (trails []*Trail, since int64, err error) {
	s := &search{id: id, open: map[string][]*Trail{}}
	log := newNatsStore(conn, StreamOf(service), service+"-", nil)
	log.subject = Subject(service, ">")
	var failed error
	err = log.read(ctx, 1, math.MaxInt, func(at stored) bool {
		failed = s.frame(at)
		return failed == nil
	})
	if failed != nil {
		err = failed
	}
	return s.trails, s.since, err
}

type search struct {
	id     protocol.MessageID
	trails []*Trail
	open   map[string][]*Trail // by ledger
	since  int64
}

// frame takes the next frame. One that cannot be read is for those who open the
// ledger to judge.
func (s *search) frame(at stored) error {
	h, records, err := decodeFrame(at.data)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if s.since == 0 {
		s.since = h.time
	}
	if len(s.open[h.ledger]) == 0 && !bytes.Contains(at.data, s.id[:]) {
		return nil
	}
	list, err := decodeRecords(nil, records, plain)
	if err != nil {
		return err
	}
	ordinal := h.first
	for i := range list {
		if err := s.record(&h, ordinal, &list[i]); err != nil {
			return err
		}
		ordinal += list[i].ordinals()
	}
	return nil
}

func (s *search) record(h *header, ordinal uint64, r *record) error {
	switch r.kind {
	case KindAccept, kindCarry:
		if r.id != s.id {
			return nil
		}
		m, err := decodeMessage(r.raw)
		if err != nil {
			return err
		}
		for i := range r.to {
			s.placed(h, ordinal+uint64(i), r, &r.to[i], m)
		}
	case KindRestate, KindDecide:
		if t := s.find(h.ledger, r.key); t != nil {
			t.Meta = *r.meta
			if r.kind == KindDecide {
				t.Dest, t.Decided = r.dest, h.time
			}
		}
	case KindSettle, KindDone:
		for i, k := range r.keys {
			if t := s.find(h.ledger, k); t != nil {
				t.Ended, t.How = h.time, r.how
				t.By, t.Took = r.ends.of(i)
				s.open[h.ledger] = slices.DeleteFunc(s.open[h.ledger], func(x *Trail) bool { return x == t })
			}
		}
	default: // the others are not about a message
	}
	return nil
}

// placed takes what an accept or a carry states of an entry.
func (s *search) placed(h *header, ordinal uint64, r *record, to *recipient, m *Message) {
	key := Key(ordinal)
	if r.kind == kindCarry {
		key = to.key
	}
	t := s.find(h.ledger, key)
	if t == nil {
		t = &Trail{Ledger: h.ledger, Key: key}
		s.trails = append(s.trails, t)
		s.open[h.ledger] = append(s.open[h.ledger], t)
	}
	t.Message, t.Meta = m, to.meta
	if r.kind == KindAccept {
		t.Accepted = h.time
	}
	if to.dest != "" {
		t.Dest = to.dest
	}
}

func (s *search) find(ledger string, k Key) *Trail {
	for _, t := range s.open[ledger] {
		if t.Key == k {
			return t
		}
	}
	return nil
}
