package retry

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// What is done with messages before their time.
const (
	now    = "release"
	cancel = "cancel"
)

// stepSize is the number of messages taken off a shelf at once: each step looks
// at all that waits there, and lists are answered in between.
const stepSize = 16384

var askAct = books.Question[*shelf, books.Step, books.StepDone]{Verb: "act", Reply: actOn}

func actOn(ctx context.Context, book *books.Book[*shelf], s books.Step) (books.StepDone, error) {
	if s.Action != now && s.Action != cancel {
		return books.StepDone{}, protocol.Errorf(protocol.CodeInvalidArgs, "action %.64q is none of %s and %s", s.Action, now, cancel)
	}
	known, err := books.Ask(ctx, book, func(shelf *shelf) bool { return shelf.lanes.Known() })
	switch {
	case err != nil:
		return books.StepDone{}, err
	case s.Action == now && !known:
		return books.StepDone{}, protocol.Errorf(protocol.CodeUnavailable, "no router has started yet: there is nowhere to send messages to")
	}
	return books.Await(ctx, book, func(shelf *shelf, answer func(books.StepDone)) { shelf.act(s, answer) })
}

// act does one step. A message leaves the shelf as its record is staged, so of
// a person's word, another's, and its time, only one has it.
func (s *shelf) act(step books.Step, answer func(books.StepDone)) {
	if step.Until == 0 {
		step.Until = s.newest
	}
	taken, more := s.takeOff(step)
	b := books.NewBatch(step, more, answer)
	for _, e := range taken {
		if step.Action == now {
			b.Stage(s.hurry(e, step.By, b))
			continue
		}
		b.Stage(s.discard(e, b))
	}
	b.Staged()
}

// hurry lets a message go for somebody.
func (s *shelf) hurry(e *ledger.Entry, by string, tag any) bool {
	meta := s.ledger.Meta(e)
	meta.Tell(ledger.Event{Kind: ledger.Released, At: time.Now().UnixNano(), Generation: e.Generation, Attempt: e.Attempt, By: by})
	return s.send(e, meta, tag)
}

// discard ends a message that was cancelled.
func (s *shelf) discard(e *ledger.Entry, tag any) bool {
	if !s.ledger.Settle(e, ledger.Discarded, tag) {
		return false
	}
	s.waited(e)
	return true
}

// takeOff takes the messages of a step off the shelf.
func (s *shelf) takeOff(step books.Step) (taken []*ledger.Entry, more bool) {
	limit := min(max(step.Limit, 1), stepSize)
	take := func(e *ledger.Entry) bool {
		if e.Key > step.Until || step.ID != uuid.Nil && e.ID != step.ID || !books.Within(e.Queue.Name, step.Queue, step.Topic, step.Execution) {
			return false
		}
		if len(taken) == limit {
			more = true
			return false
		}
		taken = append(taken, e)
		return true
	}
	s.near.remove(take)
	for _, e := range taken {
		s.bytes -= int64(e.Size)
	}
	s.far.remove(take)
	return taken, more
}

// act releases or cancels for a caller, in every ledger.
func (s *Service) act(ctx context.Context, what string, q protocol.WaitingActRequest) (protocol.WaitingActReply, error) {
	target := books.Target{MessageID: q.MessageID, Queue: q.Queue, Topic: q.Topic, Execution: q.Execution, All: q.All}
	first, known, err := target.Step(what, q.By, stepSize)
	if err != nil || !known {
		return protocol.WaitingActReply{}, err
	}
	done, err := books.Act(ctx, s.host, askAct, first)
	if err != nil || q.MessageID != "" && done.Count > 0 {
		return protocol.WaitingActReply{Count: done.Count}, err
	}
	far, err := s.actFar(ctx, what, q)
	return protocol.WaitingActReply{Count: done.Count + far}, err
}
