package router

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// What of a group follows a dead letter to the dead letters
// (protocol.DeadLetterDivert) may take several commits. A note written before
// the first says how far it goes, so that the next owner of the lane ends it.
const divertNote = "divert/" // followed by the group's number and the queue

// diversion is such a note: the letter, and the newest of what follows it.
type diversion struct{ letter, last ledger.Key }

func (d diversion) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(d.letter)), uint64(d.last))
}

func divertKey(q *queue, group uint64) string {
	return fmt.Sprintf("%s%016x%s", divertNote, group, q.name)
}

// behind are the entries of e's group that wait behind it.
func (q *queue) behind(e *broker.Entry) []*broker.Entry {
	var all []*broker.Entry
	collect := func(x *broker.Entry) bool {
		if q.groupOf(x) == q.groupOf(e) && x.Key > e.Key && x.Slot != unreadable {
			all = append(all, x)
		}
		return true
	}
	q.held.ahead(collect)
	q.group(e).waiting.ahead(collect)
	return all
}

// divert dead-letters e with meta, and what waits behind it in its group. It
// says whether e was.
func (l *lane) divert(q *queue, e *broker.Entry, meta broker.Meta) bool {
	behind := q.behind(e)
	l.divertArrivals(q, e)
	if len(behind) == 0 {
		return l.giveUp(e, meta)
	}
	note := diversion{letter: e.Key}
	for _, x := range behind {
		note.last = max(note.last, x.Key)
	}
	key := divertKey(q, q.groupOf(e))
	if err := l.ledger.PutNote(key, note.encode(), nil); err != nil {
		l.s.log.Error("what follows a dead letter is not diverted", "queue", q.name, "error", err)
		return l.giveUp(e, meta)
	}
	done := l.giveUp(e, meta)
	if done {
		l.followLetter(behind, fmt.Sprintf("%s, before it in its group, was dead-lettered: %s", e.ID, meta.Reason))
	}
	l.diverted(key)
	return done
}

// followLetter dead-letters entries because of another's end.
func (l *lane) followLetter(entries []*broker.Entry, why string) {
	for _, e := range entries {
		l.unplace(e)
		e.Slot = settled
		meta := l.storeOf(e).Meta(e)
		meta.Reason, meta.Error, meta.LastFailure, meta.Due = protocol.ReasonDiverted, why, l.wall, 0
		if meta.FirstFailure == 0 {
			meta.FirstFailure = l.wall
		}
		meta.Tell(ledger.Event{Kind: ledger.FollowedIt, At: l.wall, Generation: e.Generation, Attempt: e.Attempt, Error: why})
		if !l.giveUp(e, meta) {
			l.about(e).Error("what follows a dead letter could not follow it")
		}
	}
}

// diverted says that all of it is staged.
func (l *lane) diverted(key string) {
	if err := l.ledger.PutNote(key, nil, nil); err != nil {
		l.s.log.Error("a diversion is not forgotten", "note", key, "error", err)
	}
}

// endDiversions ends what the lane's last owner has begun, as soon as it is known
// where to; false before. A letter that is live was not decided: nothing follows
// it then.
func (l *lane) endDiversions() bool {
	if l.diversionsEnded {
		return true
	}
	for key, value := range l.ledger.Notes() {
		rest, found := strings.CutPrefix(key, divertNote)
		if !found || len(rest) < 16 || len(value) != 16 {
			continue
		}
		if !l.s.next.known() {
			return false
		}
		d := diversion{ledger.Key(binary.BigEndian.Uint64(value)), ledger.Key(binary.BigEndian.Uint64(value[8:]))}
		group, err := strconv.ParseUint(rest[:16], 16, 64)
		if letter := l.ledger.Entry(d.letter); err == nil && (letter == nil || letter.Decided) {
			q := l.queue(rest[16:])
			l.followLetter(q.upTo(group, d), "a message before it in its group was dead-lettered")
		}
		l.diverted(key)
	}
	l.diversionsEnded = true
	return true
}

// upTo are the group's entries that a diversion reaches, of what was replayed.
func (q *queue) upTo(group uint64, d diversion) []*broker.Entry {
	var all []*broker.Entry
	q.held.ahead(func(e *broker.Entry) bool {
		if q.groupOf(e) == group && e.Key > d.letter && e.Key <= d.last {
			all = append(all, e)
		}
		return true
	})
	return all
}
