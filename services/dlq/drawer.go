package dlq

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/closing"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// drawer is the owner of one ledger of dead letters. Its index has what is
// there and not yet redriven or discarded; bodies and failure texts stay in the
// log and are read when somebody looks.
type drawer struct {
	lanes  *books.Lanes
	tracer *tracing.Tracer // nil: no spans are made
	ledger *ledger.Ledger
	newest ledger.Key
	all    order
	topics map[string]*order // of a topic's subscribers together
	byID   map[protocol.MessageID]*letter
	reader books.Reader
	// leaving are the messages whose letters leave: they are not in the index any
	// more, and still in the ledger.
	leaving map[protocol.MessageID]int
	closed  closing.Closed
}

func newDrawer(lanes *books.Lanes, tracer *tracing.Tracer) *drawer {
	return &drawer{
		lanes:   lanes,
		tracer:  tracer,
		topics:  map[string]*order{},
		byID:    map[protocol.MessageID]*letter{},
		leaving: map[protocol.MessageID]int{},
	}
}

// onQueue is what the drawer keeps of a queue, in its Slot.
type onQueue struct {
	letters order
	topic   string // that the queue receives, if it receives one
	moving  int64
}

func queueSlot(q *ledger.Queue) *onQueue {
	if slot, ok := q.Slot.(*onQueue); ok {
		return slot
	}
	slot := &onQueue{topic: scope.SubscribedTopic(q.Name)}
	q.Slot = slot
	return slot
}

// Ledger is the drawer's.
func (d *drawer) Ledger() *ledger.Ledger { return d.ledger }

// Moving is the number of the queue's letters on their way back to its lane.
func (d *drawer) Moving(q *ledger.Queue) int64 { return queueSlot(q).moving }

// Opened indexes what is there.
func (d *drawer) Opened(l *ledger.Ledger) {
	d.ledger = l
	var letters []*letter
	for e := range l.Entries() {
		d.newest = max(d.newest, e.Key)
		if e.Decided {
			queueSlot(e.Queue).moving++
			d.leaving[e.ID]++
			continue
		}
		letters = append(letters, newLetter(e))
	}
	slices.SortFunc(letters, compareLetters) // so that each is added at the end
	for _, one := range letters {
		d.index(one)
	}
	d.closed.Open(l, d)
}

// Handle runs what others ask.
func (d *drawer) Handle(calls []books.Call[*drawer]) {
	for _, call := range calls {
		call(d)
	}
}

// Incoming accepts everything: a dead letter's place is here. Its due time,
// which a dead letter does not have, holds the time of its last failure, so
// that the order of letters stays in memory and need not be read at each start.
func (d *drawer) Incoming(m *ledger.Message, meta *ledger.Meta) error {
	d.died(m, meta)
	meta.Due = meta.LastFailure
	if meta.Due == 0 {
		meta.Due = m.PublishedAt
	}
	return nil
}

// Committed follows what is now in the log, and answers the step that a
// decision belonged to.
func (d *drawer) Committed(c *ledger.Commit) {
	for _, e := range c.Entries {
		switch c.Kind {
		case ledger.KindAccept:
			d.newest = max(d.newest, e.Key)
			if d.closed.Arrived(e.Queue.Name) {
				d.discard(e, nil)
				continue
			}
			d.index(newLetter(e))
		case ledger.KindDecide:
			queueSlot(e.Queue).moving++
		case ledger.KindDone:
			queueSlot(e.Queue).moving--
			d.left(e)
		case ledger.KindSettle:
			d.left(e)
		default:
		}
	}
	d.closed.Committed(c.Tag)
	if b, ok := c.Tag.(*books.Batch); ok {
		b.Committed()
	}
}

// left says that a letter that was leaving is gone.
func (d *drawer) left(e *ledger.Entry) {
	d.leaving[e.ID]--
	if d.leaving[e.ID] <= 0 {
		delete(d.leaving, e.ID)
	}
}

// Tick ends tombstones: a dead letter waits for people.
func (d *drawer) Tick(now time.Time) time.Time { return d.closed.Tick(now) }

// Closed is the end. Whoever waits for an answer learns it from the ledger's
// Done.
func (d *drawer) Closed(error, []any) {}

func newLetter(e *ledger.Entry) *letter {
	return &letter{entry: e, failedAt: e.Due, id: e.ID}
}

func (d *drawer) index(l *letter) {
	l.entry.Slot = l
	l.twin = d.byID[l.id]
	d.byID[l.id] = l
	for _, row := range d.rows(l) {
		row.add(l)
	}
}

// rows are those a letter stands in.
func (d *drawer) rows(l *letter) []*order {
	slot := queueSlot(l.entry.Queue)
	if slot.topic == "" {
		return []*order{&d.all, &slot.letters}
	}
	topic := d.topics[slot.topic]
	if topic == nil {
		topic = &order{}
		d.topics[slot.topic] = topic
	}
	return []*order{&d.all, &slot.letters, topic}
}

// present says which letters are in the ledger. One of another queue's that has
// the same message stands in for one that is leaving: it leaves too.
func (d *drawer) present(q protocol.DeadPresentRequest) protocol.DeadPresentReply {
	reply := protocol.DeadPresentReply{Present: make([]bool, len(q.Letters))}
	for i, name := range q.Letters {
		id, err := uuid.Parse(name.MessageID)
		if err != nil {
			continue
		}
		reply.Present[i] = d.leaving[id] > 0
		for l := d.byID[id]; l != nil; l = l.twin {
			reply.Present[i] = reply.Present[i] || l.entry.Queue.Name == name.Queue
		}
	}
	return reply
}

func whichPresent(ctx context.Context, book *books.Book[*drawer], q protocol.DeadPresentRequest) (protocol.DeadPresentReply, error) {
	return books.Ask(ctx, book, func(d *drawer) protocol.DeadPresentReply { return d.present(q) })
}

// remove takes a letter out of the index for good.
func (d *drawer) remove(l *letter) {
	l.gone = true
	for _, row := range d.rows(l) {
		row.lost()
	}
	first := d.byID[l.id]
	if first != l {
		for first.twin != l {
			first = first.twin
		}
		first.twin = l.twin
		return
	}
	if l.twin == nil {
		delete(d.byID, l.id)
		return
	}
	d.byID[l.id] = l.twin
}

// orderOf is the row of the letters of a queue, of a topic's subscribers, or,
// with neither, of all; nil for what nothing is known of.
func (d *drawer) orderOf(queue, topic string) *order {
	switch {
	case topic != "":
		return d.topics[topic]
	case queue == "":
		return &d.all
	}
	q := d.ledger.Queue(queue)
	if q == nil {
		return nil
	}
	return &queueSlot(q).letters
}

// letterAt is the letter with that key, nil if it is gone.
func (d *drawer) letterAt(key ledger.Key) *letter {
	e := d.ledger.Entry(key)
	if e == nil {
		return nil
	}
	l, ok := e.Slot.(*letter)
	if !ok || l.gone {
		return nil
	}
	return l
}

// heads looks letters up in order.
func (d *drawer) heads(q headsRequest) headsReply {
	row := d.orderOf(q.Queue, q.Topic)
	if row == nil || row.total() == 0 {
		return headsReply{}
	}
	before, rest := row.since(q.From)
	reply := headsReply{
		Total: len(row.letters), Before: before,
		First: row.letters[0].failedAt, Last: row.letters[len(row.letters)-1].failedAt,
	}
	for _, l := range rest[:min(max(q.Limit, 0), len(rest))] {
		reply.Heads = append(reply.Heads, head{Key: l.entry.Key, FailedAt: l.failedAt, ID: l.id})
	}
	return reply
}

func readHeads(ctx context.Context, book *books.Book[*drawer], q headsRequest) (headsReply, error) {
	return books.Ask(ctx, book, func(d *drawer) headsReply { return d.heads(q) })
}
