// Package closing is what a ledger's owner knows of closed executions: a
// tombstone for each, kept as a note in the ledger, so that every owner refuses
// and drops alike, whatever was restarted.
package closing

import (
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// noteKey is followed by the execution's id.
const noteKey = "closed/"

// Owner is the owner of a ledger, as its closed executions see it.
type Owner interface {
	// Purge drops what lies here of an execution, as far as it can be now; it
	// may be asked again.
	Purge(execution string)
	// Known are the queues that the owner keeps something of, beside those of
	// the ledger.
	Known() iter.Seq[string]
	// Forget gives up what the owner keeps of an empty queue. False: somebody
	// still uses it.
	Forget(queue string) bool
}

// Closed are the closed executions of one ledger. They are used in the ledger's
// goroutine.
type Closed struct {
	ledger *ledger.Ledger
	owner  Owner
	tombs  map[string]*tomb
	ending time.Time // when the first tombstone ends, or may; zero: none does
}

// tomb is a closed execution.
type tomb struct {
	execution string
	note      note
	queues    map[string]struct{} // that are not forgotten
	arrived   uint64
	staged    int // notes that are being committed
	waiting   []func(protocol.CloseReply)
}

// note is what the ledger keeps.
type note struct {
	Purged bool  `json:"purged,omitempty"`
	Until  int64 `json:"until,omitempty"` // ns since the epoch; 0: as long as something is left
}

// Open takes up what the ledger knows. It is called at the end of
// Owner.Opened.
func (c *Closed) Open(l *ledger.Ledger, owner Owner) {
	c.ledger, c.owner, c.tombs = l, owner, map[string]*tomb{}
	for key, value := range l.Notes() {
		execution, ok := strings.CutPrefix(key, noteKey)
		var n note
		if !ok || json.Unmarshal(value, &n) != nil {
			continue
		}
		c.tombs[execution] = &tomb{execution: execution, note: n, queues: map[string]struct{}{}}
		c.end(n)
	}
	if len(c.tombs) == 0 {
		return
	}
	c.meetAll()
	for _, t := range c.tombs {
		if t.note.Purged && c.live(t) > 0 {
			owner.Purge(t.execution)
		}
	}
}

// meetAll finds the queues of closed executions.
func (c *Closed) meetAll() {
	for q := range c.ledger.Queues() {
		c.Meet(q.Name)
	}
	for name := range c.owner.Known() {
		c.Meet(name)
	}
}

// Meet notes a queue that was not known before.
func (c *Closed) Meet(queue string) {
	if t := c.of(queue); t != nil {
		t.queues[queue] = struct{}{}
	}
}

// of is the tomb of the queue's execution, nil if that is not closed.
func (c *Closed) of(queue string) *tomb {
	if len(c.tombs) == 0 {
		return nil
	}
	return c.tombs[ExecutionOf(queue)]
}

// ExecutionOf is the execution a queue belongs to, "" for one of none.
func ExecutionOf(queue string) string {
	rest, ok := strings.CutPrefix(queue, scope.QueuePrefix)
	if !ok {
		return ""
	}
	execution, _, _ := strings.Cut(rest, "/")
	return execution
}

// Refuses is EXECUTION_CLOSED for a queue of a closed execution.
func (c *Closed) Refuses(queue string) error {
	t := c.of(queue)
	if t == nil {
		return nil
	}
	return protocol.Errorf(protocol.CodeExecutionClosed, "the execution %s is closed and takes no messages: publish to another, or let it take messages again (waybill execution reopen %s)", t.execution, t.execution)
}

// Purged says whether what is there of the queue is to be dropped.
func (c *Closed) Purged(queue string) bool {
	t := c.of(queue)
	return t != nil && t.note.Purged
}

// Arrived notes a message that was accepted; true: it is to be dropped.
func (c *Closed) Arrived(queue string) (drop bool) {
	t := c.of(queue)
	if t == nil {
		return false
	}
	t.arrived++
	t.queues[queue] = struct{}{}
	return t.note.Purged
}

// Tell takes what the registry says of an execution, and answers when the
// ledger has it. It refuses what is none: a tombstone for the execution ""
// would be one for every topic.
func (c *Closed) Tell(q protocol.CloseRequest, answer func(protocol.CloseReply)) error {
	if err := check(q); err != nil {
		return err
	}
	t := c.tombs[q.Execution]
	if q.State == protocol.ExecutionOpen {
		return c.reopen(t, answer)
	}
	known := t != nil
	if !known {
		t = &tomb{execution: q.Execution, queues: map[string]struct{}{}}
		c.tombs[q.Execution] = t
		c.meetAll()
	}
	next := note{Purged: t.note.Purged || q.State == protocol.ExecutionPurged, Until: q.Until}
	if !known || next != t.note {
		if err := c.put(t, &next); err != nil {
			return err
		}
		t.note = next
		c.end(next)
	}
	if next.Purged && c.live(t) > 0 {
		c.owner.Purge(t.execution)
	}
	if q.Forget {
		c.forget(t)
	}
	t.answer(answer, c)
	return nil
}

func check(q protocol.CloseRequest) error {
	switch q.State {
	case protocol.ExecutionOpen, protocol.ExecutionClosed, protocol.ExecutionPurged, protocol.ExecutionGone:
		return scope.CheckExecution(q.Execution)
	}
	return protocol.Errorf(protocol.CodeInvalidArgs, "an execution is not told to be %.64q", q.State)
}

// answer answers once all notes of the tomb are committed.
func (t *tomb) answer(answer func(protocol.CloseReply), c *Closed) {
	if t.staged > 0 {
		t.waiting = append(t.waiting, answer)
		return
	}
	answer(c.reply(t))
}

func (c *Closed) reopen(t *tomb, answer func(protocol.CloseReply)) error {
	if t == nil {
		answer(protocol.CloseReply{Epoch: c.ledger.Epoch()})
		return nil
	}
	if err := c.put(t, nil); err != nil {
		return err
	}
	delete(c.tombs, t.execution)
	t.answer(answer, c)
	return nil
}

// put stages the tomb's note, nil for its end.
func (c *Closed) put(t *tomb, n *note) (err error) {
	var value []byte
	if n != nil {
		if value, err = json.Marshal(n); err != nil {
			return err
		}
	}
	if err := c.ledger.PutNote(noteKey+t.execution, value, t); err != nil {
		return err
	}
	t.staged++
	return nil
}

// Committed takes the tag of a note that is in the log; false: it is not one of
// a tombstone.
func (c *Closed) Committed(tag any) bool {
	t, ok := tag.(*tomb)
	if !ok {
		return false
	}
	t.staged--
	if t.staged == 0 {
		for _, answer := range t.waiting {
			answer(c.reply(t))
		}
		t.waiting = nil
	}
	return true
}

func (c *Closed) reply(t *tomb) protocol.CloseReply {
	return protocol.CloseReply{Live: c.live(t), Queues: int64(len(t.queues)), Arrived: t.arrived, Epoch: c.ledger.Epoch()}
}

// live is the number of messages there are of the execution.
func (c *Closed) live(t *tomb) (n int64) {
	for name := range t.queues {
		if q := c.ledger.Queue(name); q != nil {
			n += q.Live
		}
	}
	return n
}

// forget forgets the queues that are empty and that nobody uses. What the
// ledger forgets is gone with its next commit, and seen to be when it is asked
// again.
func (c *Closed) forget(t *tomb) {
	for name := range t.queues {
		q := c.ledger.Queue(name)
		switch {
		case q != nil && q.Live > 0, !c.owner.Forget(name):
		case q != nil:
			c.ledger.ForgetQueue(name)
		default:
			delete(t.queues, name)
		}
	}
}

// end notes when a tombstone ends.
func (c *Closed) end(n note) {
	if end := time.Unix(0, n.Until); n.Until != 0 && (c.ending.IsZero() || end.Before(c.ending)) {
		c.ending = end
	}
}

// Tick ends tombstones whose time is over, and says when the next is.
func (c *Closed) Tick(now time.Time) time.Time {
	if c.ending.IsZero() || c.ending.After(now) {
		return c.ending
	}
	c.ending = time.Time{}
	for execution, t := range c.tombs {
		over := t.note.Until != 0 && !time.Unix(0, t.note.Until).After(now)
		if over && c.put(t, nil) == nil {
			delete(c.tombs, execution)
			continue
		}
		c.end(t.note)
	}
	return c.ending
}
