//go:build !no_artemis

package artemis

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// The broker delivers by bytes: as long as fewer than the window of a
// subscription are unsettled. How many messages that is nobody knows beforehand,
// so a session begins with a guess and subscribes once more when it was too low;
// what comes too much waits here unsettled. A queue in order has one
// subscription, as the broker gives it to one only.
const (
	guessBytes = 2 << 10 // of a message
	leastBytes = 64 << 10
	mostBytes  = 1 << 20 // of the first guess
	orderBytes = 8 << 20
)

// session is the life of the subscriptions to a queue on one connection. Nothing
// is settled after it: an acknowledgement of what the broker has back would cost
// the connection.
type session struct {
	c    *consumption
	conn *connection
	fifo bool
	idle chan struct{} // closed when nothing is wanted and nothing left

	leaving sync.WaitGroup // until the broker has back what is unsettled

	mu     sync.Mutex
	gone   bool
	subs   []string
	window int
	credit int64            // bytes that all subscriptions ask for
	size   int64            // of what is unsettled
	here   map[string]*held // by the broker's number
	shelf  []string         // of these, those that nobody wants now
	giving int              // of these, those that are being given to the lane
	first  int              // how many are given together at the beginning
	batch  []remote.Delivery
	nudge  chan struct{}
}

// held is a delivery that is not settled.
type held struct {
	delivery remote.Delivery
	size     int64
}

var (
	_ remote.Session = (*session)(nil)
	_ remote.Taker   = (*session)(nil)
)

func newSession(c *consumption, conn *connection, fifo bool) *session {
	return &session{c: c, conn: conn, fifo: fifo, idle: make(chan struct{}), here: make(map[string]*held), nudge: make(chan struct{}, 1)}
}

// run returns when the session has ended: with nil if nothing is wanted.
func (x *session) run(ctx context.Context) error {
	together := time.NewTimer(firstWait)
	defer together.Stop()
	for {
		select {
		case <-together.C:
			x.mu.Lock()
			x.give(x.together(true))
		case <-x.conn.done:
			return x.conn.ended()
		case <-x.idle:
			return nil
		case <-x.nudge:
			remote.Sleep(ctx, shelved)
			x.Want(x.c.Window())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// shelved is how long a message is away that was given back while others are
// wanted.
const shelved = 20 * time.Millisecond

// firstWait is how long the first messages of a queue with priorities wait for each
// other, so that the lane sees them in order.
const firstWait = 500 * time.Millisecond

// together are the first messages, once all are here or nobody waits any more. mu
// is held.
func (x *session) together(over bool) []remote.Delivery {
	if len(x.batch) < x.first && !over {
		return nil
	}
	all := x.batch
	x.first, x.batch = 0, nil
	return all
}

// Receive implements remote.Taker: what a divert leads here is the queue's own.
func (x *session) Receive(string) {}

// Want implements remote.Taker: it changes how many messages are wanted at once.
func (x *session) Want(window int) {
	x.mu.Lock()
	x.window = window
	var again []remote.Delivery
	if window > 0 && !x.gone {
		for _, tag := range x.shelf {
			again = append(again, x.here[numberOf(tag)].delivery)
		}
		x.shelf = nil
	}
	x.adjust()
	x.give(again)
}

// give gives deliveries to the lane. mu is held, and is not in the end.
func (x *session) give(all []remote.Delivery) {
	x.giving += len(all)
	x.mu.Unlock()
	if len(all) == 0 {
		return
	}
	x.c.sink.Arrived(x, all)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.giving -= len(all)
}

// hand says how many of the queue's messages the lane has, or had, and how many
// are kept here.
func (x *session) hand() (given, kept int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone {
		return 0, 0
	}
	kept = int64(len(x.shelf) + len(x.batch))
	return int64(len(x.here)-x.giving) - kept, kept
}

// adjust has the broker deliver more, or ends the session. mu is held.
func (x *session) adjust() {
	switch {
	case x.gone:
	case x.window == 0:
		if len(x.here) == len(x.shelf) {
			x.end()
			close(x.idle)
		}
	case x.credit == 0 && x.fifo:
		x.subscribe(orderBytes)
	case x.credit == 0:
		x.subscribe(min(max(int64(x.window)*guessBytes, leastBytes), mostBytes))
	case !x.fifo && len(x.here) < x.window && x.size*10 >= x.credit*9:
		x.subscribe(max(x.credit, int64(x.window-len(x.here))*x.size/int64(len(x.here))))
	}
}

func (x *session) subscribe(bytes int64) {
	id := x.conn.number()
	x.subs = append(x.subs, id)
	x.credit += bytes
	x.conn.take(id, x.deliver)
	x.conn.send(frame.New(frame.SUBSCRIBE, frame.Id, id, frame.Destination, x.c.spot.queue, "subscription-type", anycast,
		frame.Ack, "client-individual", "consumer-window-size", strconv.FormatInt(bytes, 10), headerTimestamp, time.Now().UTC().Format(remote.TimeLayout)), nil)
}

// end gives back what is unsettled. mu is held.
func (x *session) end() {
	x.gone = true
	for _, id := range slices.Backward(x.subs) { // the oldest are first again
		x.conn.take(id, nil)
		x.leaving.Add(1)
		left := x.c.side.b.leaving.begin(x.c.spot.address)
		x.conn.send(frame.New(frame.UNSUBSCRIBE, frame.Id, id), func(error) {
			left()
			x.leaving.Done()
		})
	}
}

// leave is end, if it has not ended.
func (x *session) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.gone {
		x.end()
	}
}

// deliver takes what a subscription delivers.
func (x *session) deliver(f *frame.Frame) {
	d := decode(f)
	x.mu.Lock()
	if x.gone {
		x.mu.Unlock()
		return
	}
	x.hold(&held{delivery: d, size: sizeOf(f)})
	now := []remote.Delivery{d}
	switch {
	case x.window == 0:
		x.shelf, now = append(x.shelf, d.Tag), nil
	case x.first > 0:
		x.batch = append(x.batch, d)
		now = x.together(false)
	}
	x.adjust()
	x.give(now)
}

// hold keeps a delivery until it is settled. One of a message that is here already
// stands instead of the earlier, which the broker has back. mu is held.
func (x *session) hold(h *held) {
	number := numberOf(h.delivery.Tag)
	if before := x.here[number]; before != nil {
		x.size -= before.size
		x.shelf = slices.DeleteFunc(x.shelf, func(tag string) bool { return tag == before.delivery.Tag })
	}
	x.here[number] = h
	x.size += h.size
}

// holds is the delivery of a tag that is here; nil: it is not. mu is held.
func (x *session) holds(tag string) *held {
	if h := x.here[numberOf(tag)]; h != nil && h.delivery.Tag == tag {
		return h
	}
	return nil
}

// sizeOf is about what the broker counts for a message.
func sizeOf(f *frame.Frame) int64 {
	n := len(f.Body) + len(f.Command) + 2
	for i := range f.Header.Len() {
		name, value := f.Header.GetAt(i)
		n += len(name) + len(value) + 2
	}
	return int64(n)
}

// Gone implements remote.Session.
func (x *session) Gone() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.gone || x.conn.ended() != nil
}

// Settle implements remote.Session.
func (x *session) Settle(tag string, done func(taken bool)) {
	x.mu.Lock()
	h := x.holds(tag)
	taken := h != nil && !x.gone && x.conn.ended() == nil
	if taken {
		delete(x.here, numberOf(tag))
		x.size -= h.size
		x.conn.send(frame.New(frame.ACK, frame.Id, tag), nil)
		x.adjust()
	}
	x.mu.Unlock()
	if done != nil {
		done(taken)
	}
}

// GiveBack implements remote.Session. There is no way to return one message: it
// stays here until others are wanted, or goes back with the session.
func (x *session) GiveBack(tag string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.holds(tag) == nil {
		return
	}
	x.shelf = append(x.shelf, tag)
	x.adjust()
	select {
	case x.nudge <- struct{}{}:
	default:
	}
}
