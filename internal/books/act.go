package books

import (
	"context"
	"sync/atomic"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Step asks for a part of something that is done to messages of a ledger: those
// of one id, of a queue, of a topic's subscribers, of an execution, or all. It
// is answered when what it did is committed.
type Step struct {
	Action    string             `json:"action"`
	ID        protocol.MessageID `json:"id,omitzero"`
	Queue     string             `json:"queue,omitempty"`
	Topic     string             `json:"topic,omitempty"`
	Execution string             `json:"execution,omitempty"`
	By        string             `json:"by,omitempty"` // who asked, as far as they said
	// Until is the newest key there was at the first step; 0 in the first one.
	// It bounds the whole to what was there when it began, whoever owns the
	// ledger meanwhile.
	Until ledger.Key `json:"until,omitempty"`
	Limit int        `json:"limit"`
}

// StepDone answers Step.
type StepDone struct {
	Count int64      `json:"count"`
	Until ledger.Key `json:"until"`
	More  bool       `json:"more,omitempty"`
	// Refused are the messages that stayed because they may not be acted on. A
	// step with More has not seen all of them.
	Refused int64 `json:"refused,omitempty"`
}

// Batch is a step whose records are being committed: it is their tag.
type Batch struct {
	done    StepDone
	pending int64
	answer  func(StepDone)
}

// NewBatch begins a step that is answered by answer.
func NewBatch(s Step, more bool, answer func(StepDone)) *Batch {
	return &Batch{done: StepDone{Until: s.Until, More: more}, answer: answer}
}

// Stage counts a record that was staged, if it was.
func (b *Batch) Stage(staged bool) {
	if staged {
		b.pending++
	}
}

// Staged says that all records are: a batch without any is answered at once.
func (b *Batch) Staged() {
	if b.pending == 0 {
		b.answer(b.done)
	}
}

// Committed counts one record that is in the log; the last answers.
func (b *Batch) Committed() {
	b.pending--
	b.done.Count++
	if b.pending == 0 {
		b.answer(b.done)
	}
}

// Act does something in every ledger, step by step, and says to how many
// messages, and how many it was refused for. What arrives in a ledger after its first step is not touched, so it
// ends.
func Act[O Owner[O]](ctx context.Context, h *Host[O], what Question[O, Step, StepDone], first Step) (done StepDone, err error) {
	var count, refused atomic.Int64
	var group errgroup.Group
	for i := range h.Total() {
		group.Go(func() error { return steps(ctx, h, h.Name(i), what, first, &count, &refused) })
	}
	err = group.Wait()
	done = StepDone{Count: count.Load(), Refused: refused.Load()}
	if err != nil {
		return done, protocol.Errorf(protocol.AsError(err).Code,
			"stopped after at least %d (%s): ask again for the rest; %v", count.Load(), first.Action, err)
	}
	return done, nil
}

func steps[O Owner[O]](ctx context.Context, h *Host[O], name string, what Question[O, Step, StepDone], next Step, count, refused *atomic.Int64) error {
	for {
		done, err := Put(ctx, h, name, what, next)
		if err != nil {
			return err
		}
		count.Add(done.Count)
		if !done.More {
			refused.Add(done.Refused)
			return nil
		}
		next.Until = done.Until
	}
}

// Target is what people said an action is for.
type Target struct {
	MessageID, Queue, Topic, Execution string
	All                                bool
}

// Within says whether a queue is one of those that are named: the queue itself,
// one that receives the topic, one of the execution. With none every queue is.
func Within(name, queue, topic, execution string) bool {
	return (queue == "" || name == queue) && (topic == "" || scope.SubscribedTopic(name) == topic) && InExecution(name, execution)
}

// maxBy bounds the name of who asks, which goes into the story of each message.
const maxBy = 128

// Step is the first step of an action on the target. known is false for an id
// that no message can have, which is no error; INVALID_ARGS unless exactly one
// thing is said, or a message and whose queue it is in.
func (t Target) Step(action, by string, limit int) (first Step, known bool, err error) {
	if len(by) > maxBy || !utf8.ValidString(by) {
		return Step{}, false, protocol.Errorf(protocol.CodeInvalidArgs, "by has %d bytes: it takes a name of at most %d", len(by), maxBy)
	}
	said := 0
	inQueue := t.MessageID != "" && (t.Queue != "" || t.Topic != "")
	for _, is := range []bool{t.MessageID != "" && !inQueue, t.Queue != "", t.Topic != "", t.Execution != "", t.All} {
		if is {
			said++
		}
	}
	if said != 1 {
		return Step{}, false, protocol.Errorf(protocol.CodeInvalidArgs, "say what to %s: exactly one of message_id, queue, topic and all (of what waits also execution); a message_id may go with a queue or a topic that it is of", action)
	}
	first = Step{Action: action, By: by, Queue: t.Queue, Topic: t.Topic, Execution: t.Execution, Limit: limit}
	if t.MessageID != "" {
		first.ID, err = uuid.Parse(t.MessageID)
		return first, err == nil && first.ID != uuid.Nil, nil
	}
	return first, true, nil
}
