//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// session is the life of one channel. Its goroutine alone uses the channel.
type session struct {
	c    *consumption
	ch   *amqp.Channel
	fifo bool

	takers  []*taker
	number  int                // of consumers so far
	window  int                // how many messages may be unsettled
	most    int                // how many may be until those of earlier consumers are not
	come    chan amqp.Delivery // from all consumers
	over    chan struct{}
	passing sync.WaitGroup
	first   int // messages that come together, so that the most urgent is first

	highest  uint64              // delivery tag
	settled  map[uint64]struct{} // above lowest
	lowest   uint64              // all up to this one are
	mark     uint64              // up to this one all were delivered to consumers that have ended
	before   int                 // how many of these are unsettled
	rejected bool                // something, since the broker was heard of last

	// Of a queue in order: what is unsettled, and of that what nobody wants.
	here  map[uint64]remote.Delivery
	shelf []uint64

	mu       sync.Mutex
	gone     bool // nothing is settled on it any more
	settling []settling
	wake     chan struct{}
}

var _ remote.Session = (*session)(nil)

// taker is a consumer, which has so many messages unsettled at most.
type taker struct {
	name     string
	prefetch int
	from     <-chan amqp.Delivery
	done     chan struct{} // nothing more comes from it
}

// settling is a message to be settled.
type settling struct {
	tag     uint64
	requeue bool
	done    func(taken bool) // whether the channel took it
}

func newSession(c *consumption, ch *amqp.Channel, fifo bool) *session {
	return &session{
		c: c, ch: ch, fifo: fifo, come: make(chan amqp.Delivery, arrivals), over: make(chan struct{}),
		settled: make(map[uint64]struct{}), here: make(map[uint64]remote.Delivery), wake: make(chan struct{}, 1),
	}
}

// Gone implements remote.Session.
func (x *session) Gone() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.gone
}

// Settle implements remote.Session.
func (x *session) Settle(tag string, done func(taken bool)) { x.settle(tag, false, done) }

// GiveBack implements remote.Session.
func (x *session) GiveBack(tag string) { x.settle(tag, true, nil) }

func (x *session) settle(tag string, requeue bool, done func(taken bool)) {
	n, err := strconv.ParseUint(tag, 10, 64)
	x.mu.Lock()
	gone := x.gone || err != nil
	if !gone {
		x.settling = append(x.settling, settling{n, requeue, done})
	}
	x.mu.Unlock()
	if gone {
		if done != nil {
			done(false)
		}
		return
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// run takes and settles until the channel or ctx ends.
func (x *session) run(ctx context.Context) error {
	closed := x.ch.NotifyClose(make(chan *amqp.Error, 1))
	for {
		if err := x.adjust(); err != nil {
			return because(closed, err)
		}
		select {
		case d := <-x.come:
			x.deliver(d)
		case <-x.ended():
			return because(closed, fmt.Errorf("the broker ended the consumer of %s: the queue was deleted", x.c.spot.queue))
		case <-x.wake:
			if err := x.adjust(); err != nil { // what goes back does not come again at once
				return because(closed, err)
			}
			x.flush()
		case <-x.c.changed:
		case answer := <-x.c.rests:
			err := x.adjust()
			answer <- err == nil && len(x.takers)+len(x.shelf) == 0 && !x.rejected
			if err != nil {
				return because(closed, err)
			}
		case err := <-closed:
			return cause(err)
		case <-ctx.Done():
			return x.end()
		}
	}
}

// ended says when the consumer ends that was begun last.
func (x *session) ended() <-chan struct{} {
	if len(x.takers) == 0 {
		return nil
	}
	return x.takers[len(x.takers)-1].done
}

// because is why the channel was closed, or the error if it was not.
func because(closed <-chan *amqp.Error, err error) error {
	select {
	case end := <-closed:
		return cause(end)
	default:
		return err
	}
}

// end settles what it can and closes the channel. What was settled last is on its way
// to the queue, which does not take it from a channel that is gone.
func (x *session) end() error {
	x.flush()
	if x.lowest+uint64(len(x.settled)) > 0 {
		mesh.Pause(context.Background(), lastSettled)
	}
	return x.ch.Close()
}

const lastSettled = 50 * time.Millisecond

// leave ends the session: what is unsettled goes back.
func (x *session) leave() {
	if !x.ch.IsClosed() {
		if err := x.ch.Close(); err != nil {
			x.c.b.log.Debug("a channel did not close", "error", err)
		}
	}
	close(x.over)
	x.passing.Wait()
	x.c.shelf.Store(0)
	x.mu.Lock()
	all := x.settling
	x.gone, x.settling = true, nil
	x.mu.Unlock()
	report(all, false)
}

// unsettled is how many deliveries are.
func (x *session) unsettled() int { return int(x.highest-x.lowest) - len(x.settled) }

// adjust has as many messages be taken as are wanted. A consumer cannot be made to have
// another window: with a new one those there are end, and as theirs are settled others
// begin, so that all that is unsettled is never more than the larger of the two.
func (x *session) adjust() error {
	if window := min(x.c.wanted().Window, math.MaxUint16); window != x.window {
		if err := x.cease(); err != nil {
			return err
		}
		x.window = window
		x.unshelve()
		if x.before == 0 || x.most < window {
			x.most = window
		}
	}
	more := x.room()
	if more <= 0 || !x.isWorth(more) {
		return nil
	}
	if x.fifo && len(x.takers) > 0 {
		if err := x.cease(); err != nil {
			return err
		}
		more = x.room()
	}
	return x.begin(more)
}

// isWorth says whether so many messages more are worth another consumer: there are
// not to be many. Of a queue in order only one gets any.
func (x *session) isWorth(more int) bool {
	switch {
	case len(x.takers) == 0, x.before == 0:
		return true
	case x.fifo:
		return false
	}
	return len(x.takers) < manyTakers || more >= x.window/4
}

const manyTakers = 16

// room is how many messages more may be asked for. A queue in order that asks for
// half of its window is left alone.
func (x *session) room() int {
	asked := 0
	for _, t := range x.takers {
		asked += t.prefetch
	}
	if x.fifo && 2*asked >= x.window {
		return 0
	}
	return min(x.window, x.most-x.before) - asked
}

// begin has another consumer take messages.
func (x *session) begin(prefetch int) error {
	queue := x.c.spot.queue
	if err := x.ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	x.first = 0
	if x.c.wanted().MaxPriority > 0 && len(x.takers) == 0 {
		q, err := x.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return err
		}
		x.first = min(q.Messages, prefetch)
	}
	x.number++
	t := &taker{name: fmt.Sprintf("waybill-%d", x.number), prefetch: prefetch, done: make(chan struct{})}
	from, err := x.ch.Consume(queue, t.name, false, false, false, false, nil)
	if err != nil {
		return err
	}
	t.from = from
	x.takers = append(x.takers, t)
	x.c.doubt = false
	x.passing.Go(func() { x.pass(t) })
	return nil
}

// pass hands on what a consumer takes.
func (x *session) pass(t *taker) {
	defer close(t.done)
	for d := range t.from {
		select {
		case x.come <- d:
		case <-x.over:
			return
		}
	}
}

// cease ends the consumers. What was delivered is still settled on the channel; what
// comes until they have ended is taken too.
func (x *session) cease() error {
	var ending sync.WaitGroup
	errs := make([]error, len(x.takers))
	for i, t := range x.takers {
		ending.Go(func() { errs[i] = x.ch.Cancel(t.name, false) })
	}
	for _, t := range x.takers {
		for over := false; !over; {
			select {
			case d := <-x.come:
				x.deliver(d)
			case <-t.done:
				over = true
			}
		}
	}
	for len(x.come) > 0 {
		x.deliver(<-x.come)
	}
	ending.Wait()
	if len(x.takers) > 0 { // what went back before is where it belongs
		x.takers, x.rejected = nil, false
	}
	x.mark, x.before = x.highest, x.unsettled()
	return errors.Join(errs...)
}

// arrivals is how many deliveries are given to the lane at once, at most.
const arrivals = 256

// deliver gives the lane a delivery, with those that have come already.
func (x *session) deliver(d amqp.Delivery) {
	batch := make([]remote.Delivery, 0, 1+min(len(x.come), arrivals))
	batch = append(batch, x.received(&d))
	if x.first > 1 {
		batch = x.together(batch)
	}
	for len(batch) < arrivals && len(x.come) > 0 {
		d := <-x.come
		batch = append(batch, x.received(&d))
	}
	x.c.sink.Arrived(x, batch)
}

func (x *session) received(d *amqp.Delivery) remote.Delivery {
	x.highest = max(x.highest, d.DeliveryTag)
	r := decode(d, x.c.spot.ledger)
	if x.fifo {
		x.here[d.DeliveryTag] = r
	}
	return r
}

// together waits for the first messages of a queue with priorities, a moment at
// most: they are not in order on the broker, but they are in the lane.
func (x *session) together(batch []remote.Delivery) []remote.Delivery {
	t := time.NewTimer(firstWait)
	defer t.Stop()
	for want := x.first; len(batch) < want; {
		select {
		case d := <-x.come:
			batch = append(batch, x.received(&d))
		case <-t.C:
			want = 0
		}
	}
	x.first = 0
	return batch
}

const firstWait = 500 * time.Millisecond

// flush settles what is to be settled.
func (x *session) flush() {
	x.mu.Lock()
	all := x.settling
	x.settling = nil
	x.mu.Unlock()
	if len(all) == 0 {
		return
	}
	now := x.shelve(all)
	var err error
	x.c.link.together(func() { err = x.settleAll(now) })
	report(all, err == nil)
}

// shelve keeps here what goes back to a queue in order, which would put behind the
// others what comes back one by one: until nothing else is in hand.
func (x *session) shelve(all []settling) []settling {
	if !x.fifo || x.window > 0 {
		return all
	}
	now := make([]settling, 0, len(all))
	for _, s := range all {
		if s.requeue {
			x.shelf = append(x.shelf, s.tag)
		} else {
			now = append(now, s)
		}
	}
	x.c.shelf.Store(int64(len(x.shelf)))
	if len(x.shelf)+len(now) < x.unsettled() {
		return now
	}
	slices.Sort(x.shelf)
	for _, tag := range x.shelf {
		now = append(now, settling{tag: tag, requeue: true})
	}
	x.shelf = nil
	x.c.shelf.Store(0)
	return now
}

// unshelve delivers what nobody wanted for a while.
func (x *session) unshelve() {
	if x.window == 0 || len(x.shelf) == 0 {
		return
	}
	slices.Sort(x.shelf)
	again := make([]remote.Delivery, len(x.shelf))
	for i, tag := range x.shelf {
		again[i] = x.here[tag]
	}
	x.shelf = nil
	x.c.shelf.Store(0)
	x.c.sink.Arrived(x, again)
}

// settleAll tells the broker. All up to the oldest delivery that is not settled
// are one acknowledgement: for quorum queues each is a command to be replicated.
func (x *session) settleAll(all []settling) error {
	var single []uint64
	var errs []error
	for _, s := range all {
		if s.requeue {
			x.rejected = true
			errs = append(errs, x.ch.Reject(s.tag, true))
		} else {
			single = append(single, s.tag)
		}
		delete(x.here, s.tag)
		x.settled[s.tag] = struct{}{}
		if s.tag <= x.mark {
			x.before--
		}
	}
	for {
		if _, is := x.settled[x.lowest+1]; !is {
			break
		}
		x.lowest++
		delete(x.settled, x.lowest)
	}
	slices.Sort(single)
	n, found := slices.BinarySearch(single, x.lowest)
	if found {
		n++
	}
	if n > 0 {
		errs = append(errs, x.ch.Ack(single[n-1], true))
	}
	for _, tag := range single[n:] {
		errs = append(errs, x.ch.Ack(tag, false))
	}
	return errors.Join(errs...)
}

func report(all []settling, taken bool) {
	for _, s := range all {
		if s.done != nil {
			s.done(taken)
		}
	}
}
