package router

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// delivery is one attempt in a worker's hands, and from its end until what
// follows is recorded. It is its entry's Slot meanwhile.
type delivery struct {
	e *broker.Entry
	q *queue
	c *consumer // nil: whose it was is not known any more

	stage   stage
	started int64  // Service.clock
	frame   uint64 // that it was sent in; 0: alone
	due     *deadlines
	prev    *delivery // in due
	next    *delivery

	// The end of it, when it was not acknowledged.
	outcome protocol.Outcome
	text    string
	at      int64 // ns since the epoch
	took    int64 // ns; of one that began under another owner, since this one heard of it
	afterMs int64 // as in conclusion

	span trace.Span // nil: it is not traced
}

type stage uint8

const (
	running   stage = iota
	overdue         // its time is up, and its worker may run it still, see late
	judged          // ended; the verdict is awaited
	recording       // what follows is being committed
)

// place is where an entry is that is in no worker's hands: the Slot of one
// that is not simply ready.
type place uint8

const (
	reading    place = iota + 1 // ready, its body is being read
	held                        // withheld, see queue.held
	paused                      // waits in lane.pauses until it is due
	settled                     // its settlement is on its way to the log
	unreadable                  // its body is damaged; stays where it is
	straying                    // waits in lane.strays to be given up
)

// deadlines are the deliveries that have the same time limit, in the order
// they began, so that only the first needs watching.
type deadlines struct {
	limit       int64
	first, last *delivery
	n           int
}

// add appends d, whose time runs from d.started.
func (l *deadlines) add(d *delivery) {
	d.due, d.prev, d.next = l, l.last, nil
	if l.last != nil {
		l.last.next = d
	} else {
		l.first = d
	}
	l.last = d
	l.n++
}

// remove takes d out of its list.
func (d *delivery) remove() {
	l := d.due
	if l == nil {
		return
	}
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		l.first = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	} else {
		l.last = d.prev
	}
	d.due, d.prev, d.next = nil, nil, nil
	l.n--
}
