package dlq

import (
	"context"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// stepSize is the number of letters decided at once: enough for large commits,
// and few enough that lists and shows are answered in between.
const stepSize = 8192

// act does one step. A letter leaves the index as its decision is staged, so
// of two redrives, or a redrive and a discard, only one has it.
func (d *drawer) act(s books.Step, answer func(books.StepDone)) {
	if s.Until == 0 {
		s.Until = d.newest
	}
	letters, more := d.pick(s)
	b := books.NewBatch(s, more, answer)
	for _, l := range letters {
		b.Stage(d.decide(l, s.Action, b))
	}
	b.Staged()
}

// pick are the letters of a step.
func (d *drawer) pick(s books.Step) (letters []*letter, more bool) {
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
func (d *drawer) decide(l *letter, what string, b *books.Batch) bool {
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

func actOn(ctx context.Context, book *books.Book[*drawer], s books.Step) (books.StepDone, error) {
	return books.Await(ctx, book, func(d *drawer, answer func(books.StepDone)) { d.act(s, answer) })
}

// act redrives or discards for a caller, in every ledger.
func (s *Service) act(ctx context.Context, what string, q protocol.DeadActRequest) (protocol.DeadActReply, error) {
	target := books.Target{MessageID: q.MessageID, Queue: q.Queue, Topic: q.Topic, All: q.All}
	first, known, err := target.Step(what, stepSize)
	if err != nil || !known {
		return protocol.DeadActReply{}, err
	}
	if what == redrive && !s.host.Lanes.Known() {
		return protocol.DeadActReply{}, protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: there is nowhere to redrive to")
	}
	count, err := books.Act(ctx, s.host, askAct, first)
	return protocol.DeadActReply{Count: count}, err
}
