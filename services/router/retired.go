package router

import (
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// retire notes which brokers the lane's placement does not name any more that the one
// before did.
func (m *moves) retire(before, now *placement) {
	for _, b := range before.Brokers {
		if now.place(b.ID) == nil {
			m.retired = append(m.retired, b.ID)
		}
	}
}

// forgetRetired forgets what is noted of brokers that are retired and left: another may
// come to have the same id.
func (l *lane) forgetRetired() {
	l.moves.retired = slices.DeleteFunc(l.moves.retired, func(id string) bool {
		if slices.ContainsFunc(l.remotes, func(r *remote) bool { return r.id == id }) {
			return false
		}
		if l.placed.place(id) == nil {
			l.forgetNotes(id)
		}
		return true
	})
}

// forgetNotes forgets what is noted of a broker's queues. What it was left with counts
// as discarded.
func (l *lane) forgetNotes(id string) {
	var keys, left []string
	for key := range l.ledger.Notes() {
		if strings.HasPrefix(key, broker.PlaceNote(id, "")) || strings.HasPrefix(key, broker.KeptNote(id, "")) {
			keys = append(keys, key)
		}
		if queue, is := strings.CutPrefix(key, broker.PlaceNote(id, "")); is {
			left = append(left, queue)
		}
	}
	for _, key := range keys {
		if err := l.ledger.PutNote(key, nil, nil); err != nil {
			l.s.log.Error("a note about a retired broker is not forgotten", "broker", id, "error", err)
		}
	}
	for _, name := range left {
		if l.isLeftBehind(name) {
			l.closeBooks(name, ledger.Discarded)
		}
	}
}

// isLeftBehind says whether what is missing of a queue is on no other broker, and not on
// its way into the log either.
func (l *lane) isLeftBehind(name string) bool {
	for _, b := range l.placed.absent {
		if l.ledger.Note(broker.PlaceNote(b.ID, name)) != nil {
			return false
		}
	}
	q := l.queues[name]
	return !l.isFar(name) && (q == nil || q.staged == 0) && l.ledger.Uncommitted(name) == [ledger.NumCounters]uint64{}
}
