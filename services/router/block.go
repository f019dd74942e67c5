package router

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// blocks are the groups that wait for a dead letter (protocol.DeadLetterBlock):
// nothing of such a group is delivered but the letter itself, when it has been
// redriven. Each is a note in the lane's ledger, written before the message is
// decided, so that no restart lets the group go on. That the letter was discarded is
// found out by asking the dlq service again and again.
type blocks struct {
	all    map[groupName]*block
	asked  []asked
	number uint64
	askAt  int64
}

type groupName struct {
	queue string
	group uint64 // queue.groupOf
}

// block is a group that waits.
type block struct {
	letter protocol.MessageID
	// here: the letter is live in this lane. moving: it is on its way from here to
	// the dead letters. step counts the changes of both.
	here, moving bool
	step         uint64
	asking       bool // it is being looked for on a broker
}

// asked is a block as it was when the dlq service was asked of it.
type asked struct {
	name groupName
	step uint64
}

const (
	blockNote  = "block/" // followed by the group's number and the queue
	blockAgain = int64(protocol.LoadInterval)
	blocksAsk  = 1000 // at once
)

// groupNameOf is that of an entry whose queue the lane has met.
func groupNameOf(e *broker.Entry) groupName {
	if q, ok := e.Queue.Slot.(*queue); ok {
		return groupName{q.name, q.groupOf(e)}
	}
	return groupName{e.Queue.Name, e.Group}
}

func (n groupName) note() string { return fmt.Sprintf("%s%016x%s", blockNote, n.group, n.queue) }

// open reads the notes, before anything is replayed.
func (b *blocks) open(l *lane) {
	b.all = make(map[groupName]*block)
	for key, value := range l.ledger.Notes() {
		rest, found := strings.CutPrefix(key, blockNote)
		if !found || len(rest) < 16 || len(value) != len(protocol.MessageID{}) {
			continue
		}
		if group, err := strconv.ParseUint(rest[:16], 16, 64); err == nil {
			b.all[groupName{rest[16:], group}] = &block{letter: protocol.MessageID(value)}
		}
	}
}

// of is the block that waits for e, nil if there is none.
func (b *blocks) of(e *broker.Entry) *block {
	if len(b.all) == 0 {
		return nil
	}
	if x := b.all[groupNameOf(e)]; x != nil && x.letter == e.ID {
		return x
	}
	return nil
}

// saw notes where a letter is.
func (b *blocks) saw(e *broker.Entry, here, moving bool) {
	if x := b.of(e); x != nil {
		x.here, x.moving = here, moving
		x.step++
	}
}

// add makes e's group wait for it; e is about to be dead-lettered.
func (b *blocks) add(l *lane, q *queue, e *broker.Entry) {
	if b.of(e) != nil {
		return // it was redriven, and dies again
	}
	name := groupNameOf(e)
	if err := l.ledger.PutNote(name.note(), e.ID[:], nil); err != nil {
		l.s.log.Error("a group is not blocked", "queue", q.name, "error", err)
		return
	}
	b.all[name] = &block{letter: e.ID, here: true}
	q.group(e).letter = e.ID
}

// remove lets a group go on.
func (b *blocks) remove(l *lane, name groupName) {
	delete(b.all, name)
	if err := l.ledger.PutNote(name.note(), nil, nil); err != nil {
		l.s.log.Error("a group's block is not forgotten", "queue", name.queue, "error", err)
	}
	if q := l.queues[name.queue]; q != nil && q.groups != nil {
		if g := q.groups[name.group]; g != nil {
			q.unblock(g)
		}
	}
}

// handled lets the group go on that waited for e, which is done.
func (b *blocks) handled(l *lane, e *broker.Entry) {
	if b.of(e) != nil {
		b.remove(l, groupNameOf(e))
	}
}

// removeAll lets all groups of a queue go on.
func (b *blocks) removeAll(l *lane, queue string) {
	for name := range b.all {
		if name.queue == queue {
			b.remove(l, name)
		}
	}
}

// apply tells a queue which of its groups wait.
func (b *blocks) apply(q *queue) {
	for name, x := range b.all {
		if name.queue == q.name {
			q.groupOfNumber(name.group).letter = x.letter
		}
	}
}

// tick asks what has become of the letters that are not here.
func (b *blocks) tick(l *lane) {
	if len(b.all) == 0 || l.now < b.askAt {
		return
	}
	b.askAt = l.now + blockAgain
	_, dlq := l.s.nextOf(l.slot.name)
	if dlq == "" {
		return
	}
	b.asked = b.asked[:0]
	var q protocol.DeadPresentRequest
	for name, x := range b.all {
		if x.here || x.moving || l.askFar(name, x) {
			continue
		}
		b.asked = append(b.asked, asked{name, x.step})
		q.Letters = append(q.Letters, protocol.LetterName{Queue: name.queue, MessageID: x.letter.String()})
		if len(q.Letters) == blocksAsk {
			break // in no order: the others another time
		}
	}
	if len(q.Letters) == 0 {
		return
	}
	b.number++
	if err := l.s.ask(protocol.DeadPresentSubject(dlq), l.inbox(askLetters, b.number), q); err != nil {
		l.s.log.Debug("the dead letters that groups wait for could not be asked for", "error", err)
	}
}

func (b *blocks) next(l *lane) int64 {
	if len(b.all) == 0 {
		return l.now + int64(idle)
	}
	return b.askAt
}

// answered lets the groups go on whose letters are nowhere any more. What has
// changed since the question says nothing.
func (b *blocks) answered(l *lane, number uint64, m *nats.Msg) {
	var reply protocol.DeadPresentReply
	if number != b.number || m.Header.Get(protocol.HeaderStatus) != "" ||
		json.Unmarshal(m.Data, &reply) != nil || len(reply.Present) != len(b.asked) {
		return
	}
	for i, a := range b.asked {
		if x := b.all[a.name]; x != nil && x.step == a.step && !reply.Present[i] {
			b.remove(l, a.name)
		}
	}
	b.asked = b.asked[:0]
}
