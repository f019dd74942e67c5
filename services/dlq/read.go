package dlq

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	// readAtOnce bounds the bodies of one read, in bytes, and readLetters their
	// number: bodies pass through memory although a list does not show them, and
	// error texts may fill a page before the keys end.
	readAtOnce  = 4 << 20
	readLetters = 64
	// pageBytes bounds the letters of one answer, well under 1 MiB.
	pageBytes = 768 << 10
)

// Loaded gives a letter to all who wait for it.
func (d *drawer) Loaded(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error) {
	d.reader.Loaded(e, m, meta, err)
}

// load reads letters, together.
func (d *drawer) load(letters []*letter, got func(l *letter, m *ledger.Message, meta ledger.Meta, err error)) {
	entries := make([]*ledger.Entry, len(letters))
	byKey := make(map[ledger.Key]*letter, len(letters))
	for i, l := range letters {
		entries[i], byKey[l.entry.Key] = l.entry, l
	}
	d.reader.Load(d.ledger, entries, func(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error) {
		got(byKey[e.Key], m, meta, err)
	})
}

// read reads the first of the keys, as many as are read at once, and answers
// one letter each, nil for one that is gone.
func (d *drawer) read(q readRequest, answer func([]*protocol.DeadLetter)) {
	keys, there := d.atOnce(q.Keys)
	read := make(map[ledger.Key]*protocol.DeadLetter, len(there))
	left := len(there)
	reply := func() {
		letters := make([]*protocol.DeadLetter, len(keys))
		for i, key := range keys {
			letters[i] = read[key]
		}
		answer(letters)
	}
	if left == 0 {
		reply()
		return
	}
	d.load(there, func(l *letter, m *ledger.Message, meta ledger.Meta, err error) {
		read[l.entry.Key] = listed(l, m, meta, q.Payloads, err)
		left--
		if left == 0 {
			reply()
		}
	})
}

// atOnce are the first of the keys that may be read together, at least one, and
// those letters that are there.
func (d *drawer) atOnce(keys []ledger.Key) (first []ledger.Key, there []*letter) {
	size := 0
	for i, key := range keys {
		l := d.letterAt(key)
		if l == nil {
			continue
		}
		size += int(l.entry.Size)
		if len(there) == readLetters || size > readAtOnce && len(there) > 0 {
			return keys[:i], there
		}
		there = append(there, l)
	}
	return keys, there
}

// listed is a letter as a list shows it. One that cannot be read is shown with
// the reason: it must not hide the others.
func listed(l *letter, m *ledger.Message, meta ledger.Meta, payload bool, err error) *protocol.DeadLetter {
	if m == nil && err == nil {
		return nil
	}
	if err != nil {
		m = &ledger.Message{}
		meta.Error = "this letter cannot be read from the log: " + err.Error()
	}
	letter := describe(l, m, meta)
	if payload {
		letter.Payload = m.Body
	}
	return letter
}

func describe(l *letter, m *ledger.Message, meta ledger.Meta) *protocol.DeadLetter {
	letter := &protocol.DeadLetter{
		MessageID:    l.id.String(),
		Queue:        meta.Queue,
		Source:       meta.Source,
		Reason:       meta.Reason,
		Error:        meta.Error,
		Attempts:     meta.Attempt,
		Generation:   meta.Generation,
		PublishedAt:  instant(m.PublishedAt),
		FirstFailure: instant(meta.FirstFailure),
		LastFailure:  instant(meta.LastFailure),
		SizeBytes:    len(m.Body),
		Group:        m.Group,
		Priority:     m.Priority,
	}
	// A queue that belongs to no execution has neither.
	letter.Execution, letter.Route, _ = scope.ParseScoped(meta.Queue)
	letter.Topic = scope.SubscribedTopic(meta.Queue)
	return letter
}

func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// readPage reads letters until the keys or pageBytes end.
func readPage(ctx context.Context, book *books.Book[*drawer], q readRequest) (readReply, error) {
	reply := readReply{Letters: []*protocol.DeadLetter{}}
	room := pageBytes
	for len(q.Keys) > 0 {
		letters, err := books.Await(ctx, book, func(d *drawer, answer func([]*protocol.DeadLetter)) { d.read(q, answer) })
		if err != nil {
			return reply, err
		}
		q.Keys = q.Keys[len(letters):]
		for _, letter := range letters {
			if room -= sizeOf(letter); room < 0 && len(reply.Letters) > 0 {
				return reply, nil
			}
			reply.Letters = append(reply.Letters, letter)
		}
	}
	return reply, nil
}

// sizeOf is what a letter takes in an answer.
func sizeOf(letter *protocol.DeadLetter) int {
	body, err := json.Marshal(letter)
	if err != nil {
		return pageBytes
	}
	return len(body) + 1
}
