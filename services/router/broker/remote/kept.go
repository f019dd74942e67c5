package remote

import (
	"encoding/json"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// kept is a note about a message that stays in its place, in order or because its
// delivery came to no end, and is not written again: with what became of it in the
// lane's ledger a broker's or router's restart does not begin at its first attempt.
type kept struct {
	Generation   uint32 `json:"generation,omitempty"`
	Attempt      uint32 `json:"attempt"`
	Vanished     uint32 `json:"vanished,omitempty"`
	Incomplete   uint32 `json:"incomplete,omitempty"`
	Due          int64  `json:"due,omitempty"` // ns since the epoch, as the next two
	FirstFailure int64  `json:"first_failure,omitempty"`
	LastFailure  int64  `json:"last_failure,omitempty"`
	Error        string `json:"error,omitempty"`
	Source       string `json:"source,omitempty"`
	Spans        string `json:"spans,omitempty"`
	Story        []byte `json:"story,omitempty"`
}

func keptOf(meta *broker.Meta) kept {
	return kept{
		meta.Generation, meta.Attempt, meta.Vanished, meta.Incomplete, meta.Due, meta.FirstFailure, meta.LastFailure,
		meta.Error, meta.Source, meta.Spans, meta.Story,
	}
}

func (s *Store) keptKey(id protocol.MessageID, queue string) string {
	return broker.KeptNote(s.host.Name, id.String()+"\n"+queue)
}

// keep notes what became of a message.
func (s *Store) keep(id protocol.MessageID, meta *broker.Meta, tag any) error {
	value, err := json.Marshal(keptOf(meta))
	if err != nil {
		return err
	}
	s.keeps = true
	return s.ledger.PutNote(s.keptKey(id, meta.Queue), value, tag)
}

// returned is the tag of a note: the entry may be delivered again when it is in
// the log.
type returned struct {
	s    *Store
	v    *live
	meta broker.Meta
}

// Return keeps the entry in its place, with what became of it noted.
func (s *Store) Return(e *broker.Entry, meta broker.Meta) bool {
	v := s.live[e.Key]
	if v == nil || v.leaving {
		return false
	}
	meta.Queue = v.place.queue
	if err := s.keep(v.message.ID, &meta, &returned{s, v, meta}); err != nil {
		s.host.Log.Error("what became of a message cannot be noted", "queue", v.place.queue, "message_id", e.ID, "error", err)
		return false
	}
	v.kept = true
	return true
}

// Noted says that the note is in the log.
func (r *returned) Noted() {
	v := r.v
	if r.s.live[v.entry.Key] != v {
		return // it comes again
	}
	if v.lost { // likewise, and is known by its note then
		r.s.goesBack(v)
		r.s.lane.Lost(&v.entry)
		return
	}
	v.meta = r.meta
	v.state()
	r.s.lane.Returned(&v.entry)
}

// Hurry notes that messages which wait on the broker do not have to any more, and calls
// done when that is in the log: their time is in them, and who takes them without the
// note has them wait for it.
func (s *Store) Hurry(all []broker.Letter, by string, done func(err error)) {
	for i := range all {
		meta := all[i].Meta
		meta.Due = 0
		meta.Tell(ledger.Event{Kind: ledger.Released, At: time.Now().UnixNano(), Generation: meta.Generation, Attempt: meta.Attempt, By: by})
		var last any
		if i == len(all)-1 {
			last = hurried(done)
		}
		if err := s.keep(all[i].Message.ID, &meta, last); err != nil {
			done(err)
			return
		}
	}
}

// hurried is the tag of the last note of these.
type hurried func(err error)

// Noted says that all are in the log.
func (done hurried) Noted() { done(nil) }

// recall has a message that came back to this lane know what became of it.
func (s *Store) recall(v *live) {
	if !s.keeps {
		return
	}
	value := s.ledger.Note(s.keptKey(v.message.ID, v.place.queue))
	if value == nil {
		return
	}
	v.kept = true
	var k kept
	if err := json.Unmarshal(value, &k); err != nil {
		s.host.Log.Warn("a note about a message cannot be read", "message_id", v.message.ID, "error", err)
		return
	}
	if k.Generation != v.meta.Generation || k.Attempt < v.meta.Attempt {
		return
	}
	m := &v.meta
	m.Attempt, m.Vanished, m.Incomplete, m.Due = k.Attempt, k.Vanished, k.Incomplete, k.Due
	m.FirstFailure, m.LastFailure, m.Error, m.Source, m.Spans, m.Story = k.FirstFailure, k.LastFailure, k.Error, k.Source, k.Spans, k.Story
}

// drop forgets the note about a message that leaves.
func (s *Store) drop(v *live) {
	if !v.kept {
		return
	}
	v.kept = false
	if err := s.ledger.PutNote(s.keptKey(v.message.ID, v.place.queue), nil, nil); err != nil {
		s.host.Log.Error("a note about a message is not forgotten", "message_id", v.message.ID, "error", err)
	}
}
