package router

import (
	"slices"
	"strings"

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

func (l *lane) forgetNotes(id string) {
	var keys []string
	for key := range l.ledger.Notes() {
		if strings.HasPrefix(key, broker.PlaceNote(id, "")) || strings.HasPrefix(key, broker.KeptNote(id, "")) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if err := l.ledger.PutNote(key, nil, nil); err != nil {
			l.s.log.Error("a note about a retired broker is not forgotten", "broker", id, "error", err)
		}
	}
}
