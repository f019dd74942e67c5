package retry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	// readAtOnce bounds the bodies that a list reads in a ledger, in bytes: they
	// pass through memory although a list does not show them.
	readAtOnce = 4 << 20
	// pageBytes bounds the messages of one answer, well under 1 MiB.
	pageBytes = 768 << 10
)

// mark is a place in the order of a list: due time, then id.
type mark struct {
	Due int64              `json:"due"`
	ID  protocol.MessageID `json:"id"`
}

func markOf(e *ledger.Entry) mark { return mark{e.Due, e.ID} }

func (m mark) compare(other mark) int {
	return cmp.Or(cmp.Compare(m.Due, other.Due), bytes.Compare(m.ID[:], other.ID[:]))
}

func (m mark) String() string { return fmt.Sprintf("%d.%s", m.Due, m.ID) }

// parseMark reads what String wrote; "" is before all.
func parseMark(s string) (m mark, err error) {
	if s == "" {
		return m, nil
	}
	due, id, _ := strings.Cut(s, ".")
	_, err = fmt.Sscan(due, &m.Due)
	if err == nil {
		m.ID, err = uuid.Parse(id)
	}
	if err != nil {
		return m, protocol.Errorf(protocol.CodeInvalidArgs, "after is %.64q: it is the next of the page before, or left out", s)
	}
	return m, nil
}

// listRequest asks the owner of one ledger for the first that wait after a mark.
type listRequest struct {
	Queue     string `json:"queue,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Execution string `json:"execution,omitempty"`
	After     mark   `json:"after"`
	Limit     int    `json:"limit"`
}

// listReply answers listRequest. More says that others follow the last.
type listReply struct {
	Messages []waitingHere `json:"messages"`
	Total    int64         `json:"total"`
	More     bool          `json:"more,omitempty"`
}

// waitingHere is a message with its place in the order, which its due time for
// people is too coarse for.
type waitingHere struct {
	Mark    mark                    `json:"mark"`
	Message protocol.WaitingMessage `json:"message"`
}

var askList = books.Question[*shelf, listRequest, listReply]{Verb: "list", Reply: listOn}

func listOn(ctx context.Context, book *books.Book[*shelf], q listRequest) (listReply, error) {
	q.Limit = min(max(q.Limit, 1), maxLimit)
	return books.Await(ctx, book, func(s *shelf, answer func(listReply)) { s.list(q, answer) })
}

// list finds the first that wait, and reads why. Only those it shows are
// sorted: very many may wait.
func (s *shelf) list(q listRequest, answer func(listReply)) {
	reply := listReply{Messages: []waitingHere{}}
	first := make([]*ledger.Entry, 0, q.Limit+1)
	look := func(e *ledger.Entry) {
		if !books.Within(e.Queue.Name, q.Queue, q.Topic, q.Execution) {
			return
		}
		reply.Total++
		if markOf(e).compare(q.After) > 0 {
			first = insertFirst(first, e, q.Limit)
		}
	}
	for _, row := range []dueOrder{s.near, s.far} {
		for _, e := range row {
			look(e)
		}
	}
	if len(first) > q.Limit {
		first, reply.More = first[:q.Limit], true
	}
	first, reply.More = atOnce(first, reply.More)
	s.describe(first, &reply, func(r listReply) {
		if len(r.Messages) == 0 && r.More {
			s.list(q, answer) // all it began with has left meanwhile
			return
		}
		answer(r)
	})
}

// insertFirst keeps the first limit + 1 of all that are inserted, in order.
func insertFirst(row []*ledger.Entry, e *ledger.Entry, limit int) []*ledger.Entry {
	order := func(a, b *ledger.Entry) int { return markOf(a).compare(markOf(b)) }
	if last := len(row) - 1; last == limit {
		if order(row[last], e) <= 0 {
			return row
		}
		row = row[:last]
	}
	place, _ := slices.BinarySearchFunc(row, e, order)
	return slices.Insert(row, place, e)
}

// atOnce are the first that may be read together, at least one.
func atOnce(row []*ledger.Entry, more bool) ([]*ledger.Entry, bool) {
	size := 0
	for i, e := range row {
		if size += int(e.Size); size > readAtOnce && i > 0 {
			return row[:i], true
		}
	}
	return row, more
}

// describe reads the entries and answers with what of them fits a page.
func (s *shelf) describe(entries []*ledger.Entry, reply *listReply, answer func(listReply)) {
	left := len(entries)
	if left == 0 {
		answer(*reply)
		return
	}
	row := make(map[ledger.Key]waitingHere, left)
	marks := make(map[ledger.Key]mark, left)
	keys := make([]ledger.Key, left)
	for i, e := range entries {
		keys[i], marks[e.Key] = e.Key, markOf(e)
	}
	s.reader.Load(s.ledger, entries, func(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error) {
		if m != nil || err != nil {
			row[e.Key] = waitingHere{marks[e.Key], describe(e, m, meta, err)}
		}
		left--
		if left == 0 {
			reply.fill(keys, row)
			answer(*reply)
		}
	})
}

// fill puts what was read into the page, until it is full.
func (r *listReply) fill(keys []ledger.Key, row map[ledger.Key]waitingHere) {
	room := pageBytes
	for _, key := range keys {
		one, there := row[key]
		if !there {
			continue
		}
		if room -= sizeOf(one); room < 0 && len(r.Messages) > 0 {
			r.More = true
			return
		}
		r.Messages = append(r.Messages, one)
	}
}

// sizeOf is what a message takes in an answer.
func sizeOf(w waitingHere) int {
	body, err := json.Marshal(w)
	if err != nil {
		return pageBytes
	}
	return len(body) + 1
}

// describe is a message for people. One that cannot be read is shown with the
// reason: it must not hide the others.
func describe(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error) protocol.WaitingMessage {
	w := protocol.WaitingMessage{
		MessageID: e.ID.String(), Queue: e.Queue.Name, Attempt: e.Attempt, Generation: e.Generation,
		Why: protocol.WaitsForRetry, Due: time.Unix(0, e.Due).UTC(),
		Error: meta.Error, Source: meta.Source,
	}
	w.Execution, w.Route, _ = scope.ParseScoped(w.Queue)
	w.Topic = scope.SubscribedTopic(w.Queue)
	if e.FirstFailure == 0 {
		w.Why = protocol.WaitsForSchedule
	}
	if err != nil {
		w.Error = "this message cannot be read from the log: " + err.Error()
		return w
	}
	w.PublishedAt, w.SizeBytes = time.Unix(0, m.PublishedAt).UTC(), len(m.Body)
	if meta.LastFailure != 0 {
		w.LastFailure = time.Unix(0, meta.LastFailure).UTC()
	}
	return w
}

// list reads one page over all ledgers, in order of due time and id.
func (s *Service) list(ctx context.Context, q protocol.WaitingListRequest) (protocol.WaitingPage, error) {
	page := protocol.WaitingPage{Messages: []protocol.WaitingMessage{}}
	if q.Limit < 0 || q.Limit > maxLimit {
		return page, protocol.Errorf(protocol.CodeInvalidArgs, "limit is %d: it is at most %d", q.Limit, maxLimit)
	}
	after, err := parseMark(q.After)
	if err != nil {
		return page, err
	}
	limit := cmp.Or(q.Limit, defaultLimit)
	rows, err := books.PutToAll(ctx, s.host, askList, listRequest{Queue: q.Queue, Topic: q.Topic, Execution: q.Execution, After: after, Limit: limit})
	if err != nil {
		return page, err
	}
	for _, row := range rows {
		page.Total += row.Total
	}
	merge(&page, rows, limit)
	err = s.addFar(ctx, q, &page, limit)
	return page, err
}

// merge puts what the ledgers read in order, until one of them has no more at
// hand or the page is full.
func merge(page *protocol.WaitingPage, rows []listReply, limit int) {
	room := pageBytes
	for {
		first := -1
		for i := range rows {
			if len(rows[i].Messages) > 0 && (first < 0 || rows[i].Messages[0].Mark.compare(rows[first].Messages[0].Mark) < 0) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		row := &rows[first]
		one := row.Messages[0]
		room -= sizeOf(one)
		if row.Messages = row.Messages[1:]; len(page.Messages) > 0 && room < 0 || len(page.Messages) == limit {
			return // page.Next is the last one's
		}
		page.Messages = append(page.Messages, one.Message)
		page.Next = one.Mark.String()
		if len(row.Messages) == 0 && row.More {
			return
		}
		if !anyLeft(rows) {
			page.Next = ""
			return
		}
	}
}

// anyLeft says whether something follows what was put on the page.
func anyLeft(rows []listReply) bool {
	return slices.ContainsFunc(rows, func(r listReply) bool { return len(r.Messages) > 0 || r.More })
}
