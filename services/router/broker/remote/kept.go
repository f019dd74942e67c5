package remote

import (
	"encoding/json"

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

func (s *Store) keptKey(v *live) string {
	return broker.KeptNote(s.host.Name, v.message.ID.String()+"\n"+v.place.queue)
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
	value, err := json.Marshal(kept{
		meta.Generation, meta.Attempt, meta.Vanished, meta.Incomplete, meta.Due, meta.FirstFailure, meta.LastFailure,
		meta.Error, meta.Source, meta.Spans, meta.Story,
	})
	if err == nil {
		err = s.ledger.PutNote(s.keptKey(v), value, &returned{s, v, meta})
	}
	if err != nil {
		s.host.Log.Error("what became of a message cannot be noted", "queue", v.place.queue, "message_id", e.ID, "error", err)
		return false
	}
	if !v.kept {
		v.kept = true
		s.keptNotes++
	}
	return true
}

// Noted says that the note is in the log.
func (r *returned) Noted() {
	v := r.v
	if v.lost || r.s.live[v.entry.Key] != v {
		return // it comes again
	}
	v.meta = r.meta
	v.state()
	r.s.lane.Returned(&v.entry)
}

// recall has a message that came back to this lane know what became of it.
func (s *Store) recall(v *live) {
	if s.keptNotes == 0 {
		return
	}
	value := s.ledger.Note(s.keptKey(v))
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
	s.keptNotes--
	if err := s.ledger.PutNote(s.keptKey(v), nil, nil); err != nil {
		s.host.Log.Error("a note about a message is not forgotten", "message_id", v.message.ID, "error", err)
	}
}
