package dlq

import (
	"context"
	"sync/atomic"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// stepSize is the number of letters decided at once: enough for large commits,
// and few enough that lists and shows are answered in between.
const stepSize = 8192

// batch is a step whose decisions are being committed.
type batch struct {
	done    stepDone
	pending int64
	answer  func(stepDone)
}

func (b *batch) committed() {
	b.pending--
	b.done.Count++
	if b.pending == 0 {
		b.answer(b.done)
	}
}

// act does one step. A letter leaves the index as its decision is staged, so
// of two redrives, or a redrive and a discard, only one has it.
func (d *drawer) act(s step, answer func(stepDone)) {
	if s.Until == 0 {
		s.Until = d.newest
	}
	letters, more := d.pick(s)
	b := &batch{done: stepDone{Until: s.Until, More: more}, answer: answer}
	for _, l := range letters {
		if d.decide(l, s.Action, b) {
			b.pending++
		}
	}
	if b.pending == 0 {
		answer(b.done)
	}
}

// pick are the letters of a step.
func (d *drawer) pick(s step) (letters []*letter, more bool) {
	if s.ID == uuid.Nil {
		row := d.orderOf(s.Queue, s.Topic)
		if row == nil {
			return nil, false
		}
		return row.first(s.Until, min(max(s.Limit, 1), stepSize))
	}
	for l := d.byID[s.ID]; l != nil; l = l.twin {
		letters = append(letters, l)
	}
	return letters, false
}

// decide stages the end of a letter here.
func (d *drawer) decide(l *letter, what action, b *batch) bool {
	e, queue := l.entry, l.entry.Queue.Name
	d.remove(l)
	if what == discard {
		d.ledger.Count(queue, ledger.Discarded, 1)
		return d.ledger.Settle(e, b)
	}
	d.ledger.Count(queue, ledger.Redriven, 1)
	return d.ledger.Decide(e, d.lanes.Of(queue), again(e), b)
}

// again is a message that starts over: a whole new budget, and no failure.
func again(e *ledger.Entry) ledger.Meta {
	return ledger.Meta{Queue: e.Queue.Name, Generation: e.Generation + 1, Attempt: 1}
}

func actOn(ctx context.Context, book *books.Book[*drawer], s step) (stepDone, error) {
	return books.Await(ctx, book, func(d *drawer, answer func(stepDone)) { d.act(s, answer) })
}

// act redrives or discards for a caller, in every ledger, step by step.
func (s *Service) act(ctx context.Context, what action, q protocol.DeadActRequest) (protocol.DeadActReply, error) {
	first, known, err := firstStep(what, q)
	if err != nil || !known {
		return protocol.DeadActReply{}, err
	}
	if what == redrive && !s.host.Lanes.Known() {
		return protocol.DeadActReply{}, protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: there is nowhere to redrive to")
	}
	var count atomic.Int64
	var group errgroup.Group
	for i := range s.host.Total() {
		group.Go(func() error { return s.steps(ctx, name(i), first, &count) })
	}
	if err := group.Wait(); err != nil {
		return protocol.DeadActReply{}, protocol.Errorf(protocol.AsError(err).Code,
			"stopped after at least %d (%s): ask again for the rest; %v", count.Load(), what, err)
	}
	return protocol.DeadActReply{Count: count.Load()}, nil
}

// steps does a redrive or a discard in one ledger. Letters that arrive after
// its first step are not touched, so it ends.
func (s *Service) steps(ctx context.Context, name string, next step, count *atomic.Int64) error {
	for {
		done, err := ask(ctx, s, name, askAct, next)
		if err != nil {
			return err
		}
		count.Add(done.Count)
		if !done.More {
			return nil
		}
		next.Until = done.Until
	}
}

// firstStep checks a request. An id that no message can have is no error, and
// known to no ledger.
func firstStep(what action, q protocol.DeadActRequest) (first step, known bool, err error) {
	said := 0
	for _, is := range []bool{q.MessageID != "", q.Queue != "", q.Topic != "", q.All} {
		if is {
			said++
		}
	}
	if said != 1 {
		return step{}, false, protocol.Errorf(protocol.CodeInvalidArgs, "say what to %s: exactly one of message_id, queue, topic and all", what)
	}
	first = step{Action: what, Queue: q.Queue, Topic: q.Topic, Limit: stepSize}
	if q.MessageID != "" {
		first.ID, err = uuid.Parse(q.MessageID)
		return first, err == nil && first.ID != uuid.Nil, nil
	}
	return first, true, nil
}
