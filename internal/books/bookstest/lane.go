package bookstest

import (
	"time"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// lane is the owner of a router's ledger, as far as handing over needs one.
type lane struct {
	mesh    *Mesh
	ledger  *ledger.Ledger
	handing map[ledger.Key]*handing
	coming  map[copyOf]ledger.Meta
}

// copyOf is one copy of a message: a queue has at most one.
type copyOf struct {
	id    protocol.MessageID
	queue string
}

// handing is a number of parcels on their way.
type handing struct {
	left   int
	answer func(error)
}

// accepting is the tag of a parcel that is being accepted.
type accepting struct {
	*handing
	parcel Parcel
}

func newLane(m *Mesh, _ string) *lane {
	return &lane{mesh: m, handing: map[ledger.Key]*handing{}, coming: map[copyOf]ledger.Meta{}}
}

func (l *lane) hand(parcels []Parcel, answer func(error)) {
	h := &handing{left: len(parcels), answer: answer}
	for _, p := range parcels {
		err := l.ledger.Accept(p.Message, []ledger.Meta{{Queue: p.Meta.Queue, Attempt: 1}}, nil, accepting{h, p})
		if err != nil {
			h.answer(err)
			return
		}
	}
}

// Ledger is the lane's.
func (l *lane) Ledger() *ledger.Ledger { return l.ledger }

// Moving is not counted.
func (l *lane) Moving(*ledger.Queue) int64 { return 0 }

// Opened finds an empty ledger.
func (l *lane) Opened(opened *ledger.Ledger) { l.ledger = opened }

// Handle runs what the test asks.
func (l *lane) Handle(calls []books.Call[*lane]) {
	for _, call := range calls {
		call(l)
	}
}

// Committed takes a parcel from its acceptance to its end, and reports what
// came back.
func (l *lane) Committed(c *ledger.Commit) {
	switch c.Kind {
	case ledger.KindAccept:
		if a, ok := c.Tag.(accepting); ok {
			l.handing[c.Entries[0].Key] = a.handing
			l.ledger.Decide(c.Entries[0], a.parcel.Dest, a.parcel.Meta, nil)
			return
		}
		came := copyOf{c.Message.ID, c.Entries[0].Queue.Name}
		l.mesh.arrived(Arrival{At: time.Now(), Message: c.Message, Meta: l.coming[came]})
		delete(l.coming, came)
		l.ledger.Settle(c.Entries[0], ledger.Acknowledged, nil)
	case ledger.KindDone:
		for _, e := range c.Entries {
			if h := l.handing[e.Key]; h != nil {
				delete(l.handing, e.Key)
				h.left--
				if h.left == 0 {
					h.answer(nil)
				}
			}
		}
	default:
	}
}

// Incoming remembers the whole state a message comes back with.
func (l *lane) Incoming(m *ledger.Message, meta *ledger.Meta) error {
	l.coming[copyOf{m.ID, meta.Queue}] = *meta
	return nil
}

// Loaded is never asked for.
func (l *lane) Loaded(*ledger.Entry, *ledger.Message, ledger.Meta, error) {}

// Tick has nothing to do.
func (l *lane) Tick(time.Time) time.Time { return time.Time{} }

// Closed has nothing to do.
func (l *lane) Closed(error, []any) {}
