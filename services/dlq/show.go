package dlq

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// shown is a letter whole, or why it cannot be.
type shown struct {
	letter *protocol.DeadLetter
	err    error
}

// show reads the letter of a message that failed last.
func (d *drawer) show(id protocol.MessageID, answer func(shown)) {
	last := d.byID[id]
	if last == nil {
		answer(shown{})
		return
	}
	for l := last.twin; l != nil; l = l.twin {
		if l.failedAt > last.failedAt {
			last = l
		}
	}
	d.load([]*letter{last}, func(l *letter, m *ledger.Message, meta ledger.Meta, err error) {
		if m == nil || err != nil {
			answer(shown{err: err})
			return
		}
		letter := describe(l, m, meta)
		letter.Headers, letter.HeadersBase64, letter.Payload = m.Headers, notText(m.Headers), m.Body
		answer(shown{letter: letter})
	})
}

// notText are the headers whose values JSON cannot hold as text.
func notText(headers map[string][]string) map[string][][]byte {
	var found map[string][][]byte
	for name, values := range headers {
		if !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			continue
		}
		if found == nil {
			found = make(map[string][][]byte)
		}
		for _, v := range values {
			found[name] = append(found[name], []byte(v))
		}
	}
	return found
}

func showWhole(ctx context.Context, book *books.Book[*drawer], q showRequest) (showReply, error) {
	found, err := books.Await(ctx, book, func(d *drawer, answer func(shown)) { d.show(q.ID, answer) })
	if err == nil {
		err = found.err
	}
	return showReply{Letter: found.letter}, err
}

// show asks every ledger for a message. Of several letters, one in each queue
// that gave the message up, it shows the one that failed last.
func (s *Service) show(ctx context.Context, q protocol.DeadShowRequest) (protocol.DeadLetter, error) {
	id, err := uuid.Parse(q.MessageID)
	if err != nil {
		return protocol.DeadLetter{}, unknown(q.MessageID)
	}
	replies, err := books.PutToAll(ctx, s.host, askShow, showRequest{ID: id})
	if err != nil {
		return protocol.DeadLetter{}, err
	}
	replies = slices.DeleteFunc(replies, func(r showReply) bool { return r.Letter == nil })
	far, err := s.showFar(ctx, q.MessageID)
	if err != nil && len(replies) == 0 {
		return protocol.DeadLetter{}, err
	}
	for i := range far {
		replies = append(replies, showReply{Letter: &far[i]})
	}
	if len(replies) == 0 {
		return protocol.DeadLetter{}, unknown(q.MessageID)
	}
	last := slices.MaxFunc(replies, func(a, b showReply) int { return a.Letter.LastFailure.Compare(b.Letter.LastFailure) })
	return *last.Letter, nil
}

func unknown(id string) error {
	return protocol.Errorf(protocol.CodeNotFound, "no dead letter has the id %.64q: it was redriven or discarded, or never died; list those there are (waybill dlq ls)", id)
}
