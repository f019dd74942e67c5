package dlq

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// stepSize is the number of letters decided at once: enough for large commits,
// and few enough that lists and shows are answered in between.
const stepSize = 8192

// act does one step. A letter leaves the index as its decision is staged, so
// of two redrives, or a redrive and a discard, only one has it.
func (d *drawer) act(s books.Step, by trace.SpanContext, answer func(books.StepDone)) {
	if s.Until == 0 {
		s.Until = d.newest
	}
	letters, refused, more := d.pick(s)
	b := books.NewBatch(s, more, func(done books.StepDone) {
		done.Refused = refused
		answer(done)
	})
	for _, l := range letters {
		b.Stage(d.decide(l, s, by, b))
	}
	b.Staged()
}

// pick are the letters of a step. Those of a closed execution cannot be
// redriven: they stay, and are counted refused.
func (d *drawer) pick(s books.Step) (letters []*letter, refused int64, more bool) {
	stays := func(l *letter) bool {
		if s.ID != uuid.Nil && !books.Within(l.entry.Queue.Name, s.Queue, s.Topic, "") {
			return true
		}
		if s.Action != redrive || d.closed.Refuses(l.entry.Queue.Name) == nil {
			return false
		}
		refused++
		return true
	}
	if s.ID == uuid.Nil {
		row := d.orderOf(s.Queue, s.Topic)
		if row == nil {
			return nil, 0, false
		}
		letters, more = row.first(s.Until, min(max(s.Limit, 1), stepSize), stays)
		return letters, refused, more
	}
	for l := d.byID[s.ID]; l != nil; l = l.twin {
		if !stays(l) {
			letters = append(letters, l)
		}
	}
	return letters, refused, false
}

// decide stages the end of a letter here.
func (d *drawer) decide(l *letter, s books.Step, by trace.SpanContext, b *books.Batch) bool {
	e := l.entry
	d.remove(l)
	spans := d.acted(by, s.Action, e)
	if s.Action == discard {
		return d.discard(e, b)
	}
	d.leaving[e.ID]++
	meta := again(e, spans)
	meta.Tell(ledger.Event{Kind: ledger.Redrove, At: time.Now().UnixNano(), Generation: meta.Generation, Attempt: 1, By: s.By, Trace: redriveOf(spans)})
	staged := d.ledger.Decide(e, d.lanes.Of(e.Queue.Name), meta, b)
	if staged {
		d.ledger.CountWith(e.Queue, ledger.Redriven)
	}
	return staged
}

// again is a message that starts over: a whole new budget, and no failure.
func again(e *ledger.Entry, spans string) ledger.Meta {
	return ledger.Meta{Queue: e.Queue.Name, Generation: e.Generation + 1, Attempt: 1, Spans: spans}
}

func actOn(ctx context.Context, book *books.Book[*drawer], s books.Step) (books.StepDone, error) {
	if s.Action != redrive && s.Action != discard {
		return books.StepDone{}, protocol.Errorf(protocol.CodeInvalidArgs, "action %.64q is none of %s and %s", s.Action, redrive, discard)
	}
	by := trace.SpanContextFromContext(ctx)
	return books.Await(ctx, book, func(d *drawer, answer func(books.StepDone)) { d.act(s, by, answer) })
}

// act redrives or discards for a caller, in every ledger.
func (s *Service) act(ctx context.Context, what string, q protocol.DeadActRequest) (protocol.DeadActReply, error) {
	target := books.Target{MessageID: q.MessageID, Queue: q.Queue, Topic: q.Topic, All: q.All}
	first, known, err := target.Step(what, q.By, stepSize)
	if err == nil && !known {
		err = s.refusalOf(ctx, q.Queue, q.Topic)
	}
	if err != nil || !known {
		return protocol.DeadActReply{}, err
	}
	if what == redrive && !s.host.Lanes.Known() {
		return protocol.DeadActReply{}, protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: there is nowhere to redrive to")
	}
	ctx, span := s.tracer.Act(ctx, what)
	done, err := books.Act(ctx, s.host, askAct, first)
	if err == nil {
		var far protocol.DeadActReply
		far, err = s.actFar(ctx, what, q)
		done.Count += far.Count
		done.Refused += far.Refused
		if done.Count+done.Refused > 0 && protocol.CodeOf(err) == protocol.CodeUnsupported {
			err = nil // its broker can have none now: these are from before
		}
	}
	if done.Count > 0 && protocol.CodeOf(err) == protocol.CodeUnavailable {
		err = protocol.Errorf(protocol.CodeUnavailable, "this was done with %d dead letters, and may not be with others: %s", done.Count, protocol.AsError(err).Message)
	}
	tracing.EndAct(span, done.Count, err)
	if err == nil && done.Count == 0 && done.Refused > 0 {
		err = protocol.Errorf(protocol.CodeExecutionClosed, "%d dead letters are of executions that are closed, and stay: let those take messages again first (waybill execution reopen)", done.Refused)
	}
	return protocol.DeadActReply{Count: done.Count, Refused: done.Refused}, err
}
