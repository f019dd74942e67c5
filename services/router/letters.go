package router

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// lettersBytes bounds the letters of one answer, well under 1 MiB.
const lettersBytes = 768 << 10

// What is done with letters on a broker.
const (
	redrive = "redrive"
	discard = "discard"
)

// serveLetters answers what the dlq service asks of brokers.
func (o *openLane) serveLetters() error {
	return errors.Join(
		serve(o, protocol.VerbLetters, o.letters),
		serve(o, protocol.VerbLettersAct, o.actOnLetters),
		o.serveShelves(),
	)
}

// wanted says whether a queue is meant by a queue's name, a topic, or neither.
func wanted(queue, topic string) func(string) bool {
	return func(name string) bool {
		switch {
		case queue != "":
			return name == queue
		case topic != "":
			return scope.SubscribedTopic(name) == topic
		}
		return true
	}
}

// letters reads dead letters from brokers.
func (o *openLane) letters(ctx context.Context, q protocol.BrokerLettersRequest) (protocol.BrokerLetters, error) {
	page := protocol.BrokerLetters{Letters: []protocol.DeadLetter{}}
	var all []ordered
	id, err := idOf(q.MessageID)
	if err != nil {
		return page, err
	}
	far, away, err := o.lettersMeant(ctx, q.Queue, q.Topic, q.Known, id)
	if err != nil {
		return page, err
	}
	for _, f := range far {
		total, found, err := f.lettersFor(ctx, id, &q)
		if err != nil && !away.took(&f, err) {
			return page, err
		}
		page.Total += total
		all = append(all, inOrder(found)...)
	}
	page.Away = away.told()
	slices.SortStableFunc(all, func(a, b ordered) int { return cmp.Compare(a.at, b.at) })
	for _, l := range all[max(0, min(q.Skip, len(all))):] {
		page.Letters, page.Order = append(page.Letters, l.letter), append(page.Order, l.at)
	}
	o.s.cut(page.Letters)
	page.Letters = fitting(page.Letters)
	page.Order = page.Order[:len(page.Letters)]
	return page, nil
}

// lettersMeant are the queues on brokers that are meant, with known only those in which
// the letter of that id was seen.
func (o *openLane) lettersMeant(ctx context.Context, queue, topic string, known bool, id protocol.MessageID) ([]farQueue, unasked, error) {
	far, err := o.lettersOf(ctx, queue, topic)
	if !known {
		return far, o.s.absent(), err
	}
	return slices.DeleteFunc(far, func(f farQueue) bool { return !f.known.has(id, f.queue) }), unasked{}, err
}

// lettersFor are how many letters a queue has, and those that are asked for.
func (f *farQueue) lettersFor(ctx context.Context, id protocol.MessageID, q *protocol.BrokerLettersRequest) (int64, []protocol.DeadLetter, error) {
	depth, err := f.Depth(ctx, f.queue, nil)
	if err != nil || depth.Dead == 0 || q.Limit <= 0 && id == (protocol.MessageID{}) {
		return depth.Dead, nil, err
	}
	found, err := f.read(ctx, id, q.Limit, q.Payloads)
	return depth.Dead, found, err
}

// ordered is a letter with its place between those of other queues.
type ordered struct {
	letter protocol.DeadLetter
	at     int64 // BrokerLetters.Order
}

// inOrder keeps the order of a queue. Letters come there as they are written, which
// may be a while after their failure: by that alone the first of them would be others
// when more of them are read.
func inOrder(letters []protocol.DeadLetter) []ordered {
	all, at := make([]ordered, len(letters)), int64(0)
	for i := range letters {
		at = max(at, letters[i].LastFailure.UnixNano())
		all[i] = ordered{letters[i], at}
	}
	return all
}

// lettersOf are the queues on brokers that may have dead letters. Who asks for those of
// a queue or a topic by its name is told if its broker cannot have any, and no other has
// had it.
func (o *openLane) lettersOf(ctx context.Context, queue, topic string) ([]farQueue, error) {
	type answer struct {
		without *remote
		far     []farQueue
	}
	a, err := ask(ctx, o, func(l *lane) answer {
		return answer{l.withoutLetters(queue, topic), l.farQueues(wanted(queue, topic))}
	})
	if err != nil {
		return nil, err
	}
	far := slices.DeleteFunc(a.far, func(f farQueue) bool { return !f.Capabilities().DeadLetters })
	if a.without != nil && len(far) == 0 {
		if b, has := a.without.Remote.(broker.WithoutLetters); has {
			return nil, b.NoLetters()
		}
		return nil, broker.Refusal(a.without, broker.WishDLQ)
	}
	return far, nil
}

// withoutLetters is the broker of what is asked for if it has no dead letters.
func (l *lane) withoutLetters(queue, topic string) *remote {
	if len(l.remotes) == 0 || queue == "" && topic == "" {
		return nil
	}
	id := l.placed.routing.OfTopic(topic)
	if queue != "" {
		id = l.placed.routing.Of(queue)
	}
	if r := l.remoteOf(id); r != nil && !r.can.DeadLetters {
		return r
	}
	return nil
}

// idOf reads a message id; "" is none.
func idOf(text string) (protocol.MessageID, error) {
	if text == "" {
		return protocol.MessageID{}, nil
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return protocol.MessageID{}, protocol.Errorf(protocol.CodeNotFound, "no dead letter has the id %.64q", text)
	}
	return id, nil
}

// read reads a queue's letters, or of these the one with an id.
func (f *farQueue) read(ctx context.Context, id protocol.MessageID, limit int, payloads bool) ([]protocol.DeadLetter, error) {
	one := id != (protocol.MessageID{})
	found, err := f.Browse(ctx, f.queue, limit, id)
	for i := range found {
		f.known.add(found[i].Message.ID, f.queue)
	}
	letters := make([]protocol.DeadLetter, 0, len(found))
	for i := range found {
		letter := described(&found[i], one)
		if payloads {
			letter.Payload = found[i].Message.Body
		}
		letters = append(letters, letter)
	}
	return letters, err
}

// sightings are where dead letters were seen lately, so that one need not be
// looked for in all queues.
type sightings struct {
	mu  sync.Mutex
	all map[protocol.MessageID][]string // queues
}

// maxSightings bounds them: they are forgotten together.
const maxSightings = 1 << 16

func (s *sightings) add(id protocol.MessageID, queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxSightings {
		s.all = make(map[protocol.MessageID][]string)
	}
	if !slices.Contains(s.all[id], queue) {
		s.all[id] = append(s.all[id], queue)
	}
}

func (s *sightings) has(id protocol.MessageID, queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.all[id], queue)
}

// described is a letter as the dlq service shows it.
func described(l *broker.Letter, whole bool) protocol.DeadLetter {
	m, meta := l.Message, &l.Meta
	letter := protocol.DeadLetter{
		MessageID: m.ID.String(), Queue: meta.Queue, Source: meta.Source, Reason: meta.Reason, Error: meta.Error,
		Attempts: meta.Attempt, Generation: meta.Generation, PublishedAt: instant(m.PublishedAt),
		FirstFailure: instant(meta.FirstFailure), LastFailure: instant(cmp.Or(meta.LastFailure, m.PublishedAt)),
		SizeBytes: l.SizeBytes(), Group: m.Group, Priority: m.Priority,
	}
	letter.Execution, letter.Route, _ = scope.ParseScoped(meta.Queue)
	letter.Topic = scope.SubscribedTopic(meta.Queue)
	if !whole {
		return letter
	}
	letter.Headers, letter.Payload = m.Headers, m.Body
	for name, values := range m.Headers {
		if slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			if letter.HeadersBase64 == nil {
				letter.HeadersBase64 = make(map[string][][]byte)
			}
			for _, v := range values {
				letter.HeadersBase64[name] = append(letter.HeadersBase64[name], []byte(v))
			}
		}
	}
	return letter
}

func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// besidesPayload is more than an answer with one letter takes beside its payload: its
// headers, twice, and its error.
const besidesPayload = 512 << 10

// cut leaves of payloads as much as an answer holds.
func (s *Service) cut(letters []protocol.DeadLetter) {
	most := max(int(s.bulk.MaxPayload())-besidesPayload, besidesPayload) / 4 * 3 // base64
	for i := range letters {
		if l := &letters[i]; len(l.Payload) > most {
			l.Payload, l.Truncated = l.Payload[:most], true
		}
	}
}

// fitting are the first that one answer holds, at least one.
func fitting[L any](letters []L) []L {
	room := lettersBytes
	for i := range letters {
		var size bytes.Buffer
		if err := json.NewEncoder(&size).Encode(&letters[i]); err != nil {
			return letters[:i]
		}
		if room -= size.Len(); room < 0 && i > 0 {
			return letters[:i]
		}
	}
	return letters
}

// actOnLetters redrives or discards dead letters on brokers, those that are
// there now. Those of a closed execution are not redriven.
func (o *openLane) actOnLetters(ctx context.Context, q protocol.BrokerActRequest) (protocol.DeadActReply, error) {
	var reply protocol.DeadActReply
	if q.Action != redrive && q.Action != discard {
		return reply, protocol.Errorf(protocol.CodeInvalidArgs, "action %.64q is none of %s and %s", q.Action, redrive, discard)
	}
	id, err := idOf(q.MessageID)
	if err != nil {
		return reply, err
	}
	far, away, err := o.lettersMeant(ctx, q.Queue, q.Topic, q.Known, id)
	if err != nil {
		return reply, err
	}
	for _, f := range far {
		if err := o.actOn(ctx, &f, id, &q, &reply); err != nil && !away.took(&f, err) {
			return reply, err
		}
	}
	reply.Away = away.told()
	return reply, nil
}

func (o *openLane) actOn(ctx context.Context, f *farQueue, id protocol.MessageID, q *protocol.BrokerActRequest, reply *protocol.DeadActReply) error {
	if f.refused && q.Action == redrive {
		n, err := f.meant(ctx, id)
		reply.Refused += n
		return err
	}
	n, err := f.Act(ctx, f.queue, broker.Action{Redrive: q.Action == redrive, ID: id, By: q.By})
	reply.Count += n
	o.countActed(f.queue, q.Action, n)
	return err
}

// meant is how many of a queue's letters are meant.
func (f *farQueue) meant(ctx context.Context, id protocol.MessageID) (int64, error) {
	if id != (protocol.MessageID{}) {
		found, err := f.Browse(ctx, f.queue, 1, id)
		return int64(len(found)), err
	}
	depth, err := f.Depth(ctx, f.queue, nil)
	return depth.Dead, err
}

// countActed counts what was done with a queue's letters.
func (o *openLane) countActed(queue, action string, n int64) {
	if n == 0 {
		return
	}
	counter := ledger.Redriven
	if action == discard {
		counter = ledger.Discarded
	}
	o.running.Send(call(func(l *lane) { l.ledger.Count(queue, counter, uint64(n)) }))
}
