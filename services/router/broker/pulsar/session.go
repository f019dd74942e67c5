//go:build !no_pulsar

package pulsar

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Why a session ends.
var (
	errLost        = errors.New("the connection to the broker is lost")
	errReceives    = errors.New("it is to receive something else")
	errRedelivered = errors.New("the broker has given back what it had delivered")
	errClosed      = errors.New("the consumer was closed")
)

const (
	// fetched bounds what waits here to be taken.
	fetched = 256
	// dead letters are made by the mesh. The client does so too, of what somebody else
	// has refused so often.
	farBound = 1000
)

// session is the life of the consumers of a queue. It is over when a connection of
// theirs is lost, and when the broker delivers again what was not settled: all that
// they had been given is lost then.
type session struct {
	c         *consumption
	receives  bool // a topic too
	consumers map[pulsar.Consumer]bool
	arriving  chan pulsar.ConsumerMessage
	acking    sync.WaitGroup
	nudge     chan struct{} // what is wanted, or there is room for, has changed
	settled   chan struct{} // something is to be acknowledged
	awaited   chan struct{} // and somebody waits for it
	over      chan struct{} // closed when it is to end
	closing   chan struct{} // closed when nothing more is settled

	mu       sync.Mutex
	why      error // it ends; nil: nothing is wanted
	gone     bool
	window   int
	last     uint64
	here     map[string]*held
	leaving  int      // of these, those that are being acknowledged
	shelf    []string // of these, those that nobody wants now
	returned bool     // the shelf is to be looked at again
	acks     []*held
}

// held is a delivery that the broker has not taken the acknowledgement of.
type held struct {
	delivery remote.Delivery
	of       pulsar.Consumer
	id       pulsar.MessageID
	number   uint64 // in the order of their arrival
	settled  bool
	done     func(taken bool)
}

var (
	_ remote.Session = (*session)(nil)
	_ remote.Taker   = (*session)(nil)
)

func newSession(c *consumption, receives bool) *session {
	return &session{
		c: c, receives: receives, consumers: make(map[pulsar.Consumer]bool), arriving: make(chan pulsar.ConsumerMessage, fetched),
		nudge: make(chan struct{}, 1), settled: make(chan struct{}, 1), awaited: make(chan struct{}, 1), over: make(chan struct{}), closing: make(chan struct{}),
		here: make(map[string]*held),
	}
}

// open begins to consume.
func (x *session) open(fifo bool) error {
	from := []source{x.c.spot.own()}
	if x.receives {
		from = append(from, x.c.spot.from)
	}
	for _, at := range from {
		consumer, err := x.c.b.client.Subscribe(x.options(at, fifo))
		if err != nil {
			x.closeConsumers()
			return err
		}
		x.consumers[consumer] = true
	}
	x.acking.Go(x.acknowledge)
	return nil
}

// options are those of a queue's consumer. It begins at the earliest message:
// whoever made the subscription has said where that is. The client asks how it is to
// connect again when the connection is lost, and then does not: it would settle there
// what was delivered here.
func (x *session) options(at source, fifo bool) pulsar.ConsumerOptions {
	o := pulsar.ConsumerOptions{
		Topic: at.topic, SubscriptionName: at.subscription, Type: pulsar.Shared, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		MessageChannel: x.arriving, ReceiverQueueSize: min(max(2*x.c.Window(), 16), fetched),
		AckWithResponse: true, EnableBatchIndexAcknowledgment: true, MaxReconnectToBroker: new(uint(0)),
		BackOffPolicyFunc: func() backoff.Policy {
			x.finish(errLost)
			return newPatience()
		},
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: farBound, DeadLetterTopic: x.c.spot.dead, InitialSubscriptionName: subscription},
	}
	if fifo {
		o.Type = pulsar.KeyShared
	}
	return o
}

// run returns when the session has ended: with nil if nothing is wanted.
func (x *session) run(ctx context.Context) error {
	for {
		var arriving chan pulsar.ConsumerMessage
		if x.room() > 0 {
			arriving = x.arriving
		}
		select {
		case m := <-arriving:
			if all := x.take(m); len(all) > 0 {
				x.c.sink.Arrived(x, all)
			}
		case <-x.nudge:
			x.unshelve(ctx)
		case <-x.over:
			return x.ended()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (x *session) ended() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.why
}

// room is how many more are wanted.
func (x *session) room() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone {
		return 0
	}
	return x.window - (len(x.here) - x.leaving)
}

// take notes what has arrived, as far as there is room for it.
func (x *session) take(m pulsar.ConsumerMessage) (all []remote.Delivery) {
	for n := x.room(); ; n-- {
		d, ok := x.note(m)
		if !ok {
			x.finish(errRedelivered)
			return all
		}
		all = append(all, d)
		if n <= 1 {
			return all
		}
		select {
		case m = <-x.arriving:
		default:
			return all
		}
	}
}

// note notes one; false: it is here already.
func (x *session) note(m pulsar.ConsumerMessage) (remote.Delivery, bool) {
	h := &held{delivery: decode(m.Message), of: m.Consumer, id: m.ID()}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.here[h.delivery.Tag] != nil {
		return h.delivery, false
	}
	x.last++
	h.number = x.last
	x.here[h.delivery.Tag] = h
	return h.delivery, true
}

// Receive implements remote.Taker.
func (x *session) Receive(topic string) {
	if x.receives != x.c.receives(topic) {
		x.finish(errReceives)
	}
}

// Want implements remote.Taker: it changes how many messages are wanted at once.
func (x *session) Want(window int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.window = window
	x.returned = x.returned || len(x.shelf) > 0
	x.adjust()
}

// adjust ends the session if nothing is wanted, and else looks for more. mu is
// held.
func (x *session) adjust() {
	if x.window == 0 && len(x.here)-x.leaving == len(x.shelf) {
		x.finishLocked(nil)
		return
	}
	signal(x.nudge)
}

// shelved is how long a message is away that was given back while others are
// wanted.
const shelved = 20 * time.Millisecond

// unshelve gives again what was given back, if it is wanted.
func (x *session) unshelve(ctx context.Context) {
	x.mu.Lock()
	again := x.returned && x.window > 0 && !x.gone
	x.mu.Unlock()
	if !again || !remote.Sleep(ctx, shelved) {
		return
	}
	x.mu.Lock()
	var all []remote.Delivery
	if x.window > 0 && !x.gone {
		for _, tag := range x.shelf {
			all = append(all, x.here[tag].delivery)
		}
		x.shelf, x.returned = nil, false
	}
	x.mu.Unlock()
	if len(all) > 0 {
		x.c.sink.Arrived(x, all)
	}
}

// finish ends the session.
func (x *session) finish(why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.finishLocked(why)
}

func (x *session) finishLocked(why error) {
	if x.gone {
		return
	}
	x.gone, x.why = true, why
	close(x.over)
}

// close gives back what is not settled, once what is has been acknowledged.
func (x *session) close() {
	x.finish(errClosed)
	close(x.closing)
	x.acking.Wait()
	x.closeConsumers()
}

func (x *session) closeConsumers() {
	for consumer := range x.consumers {
		consumer.Close()
	}
}

// Gone implements remote.Session.
func (x *session) Gone() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.gone
}

// Settle implements remote.Session.
func (x *session) Settle(tag string, done func(taken bool)) {
	x.mu.Lock()
	h := x.here[tag]
	taken := h != nil && !x.gone && !h.settled
	if taken {
		h.settled, h.done = true, done
		x.leaving++
		x.acks = append(x.acks, h)
		x.adjust()
	}
	x.mu.Unlock()
	switch {
	case taken:
		signal(x.settled)
		if done != nil {
			signal(x.awaited)
		}
	case done != nil:
		done(false)
	}
}

// signal has who receives from c look.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// acknowledge settles at the broker what is settled here, all of it together.
func (x *session) acknowledge() {
	for last := false; ; {
		x.mu.Lock()
		acks := x.acks
		x.acks = nil
		x.mu.Unlock()
		if len(acks) > 0 {
			x.acknowledged(acks)
			x.gather()
			continue
		}
		if last {
			return
		}
		select {
		case <-x.settled:
		case <-x.closing:
			last = true // what came meanwhile
		}
	}
}

// gathered is for how long what nobody waits for is gathered to be acknowledged
// together: each command costs the broker as much as many messages in it.
const gathered = 2 * time.Millisecond

// gather returns when more is to be acknowledged, as far as somebody waits for it, and
// else a little later.
func (x *session) gather() {
	select {
	case <-x.awaited:
	case <-x.closing:
	case <-time.After(gathered):
	}
}

// acknowledged tells the broker, and who waits for it.
func (x *session) acknowledged(acks []*held) {
	byConsumer := make(map[pulsar.Consumer][]pulsar.MessageID, len(x.consumers))
	for _, h := range acks {
		byConsumer[h.of] = append(byConsumer[h.of], h.id)
	}
	failed := make(map[pulsar.Consumer]bool)
	for consumer, all := range byConsumer {
		if err := consumer.AckIDList(all); err != nil {
			failed[consumer] = true
		}
	}
	x.mu.Lock()
	for _, h := range acks {
		delete(x.here, h.delivery.Tag)
	}
	x.leaving -= len(acks)
	x.mu.Unlock()
	for _, h := range acks {
		if h.done != nil {
			h.done(!failed[h.of])
		}
	}
}

// GiveBack implements remote.Session. There is no way to return one message to its
// place: it stays here until others are wanted, or goes back with the session.
func (x *session) GiveBack(tag string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.here[tag]; h == nil || h.settled || x.gone {
		return
	}
	x.shelf = append(x.shelf, tag)
	x.returned = true
	x.adjust()
}

// mark is the number of the last that has arrived.
func (x *session) mark() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

// holds is how many of those that had arrived by a mark are in the lane's hands, and
// were all the time. What is being acknowledged may not be the broker's any more.
func (x *session) holds(mark uint64) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := int64(-len(x.shelf))
	for _, h := range x.here {
		if h.number <= mark && !h.settled {
			n++
		}
	}
	return max(0, n)
}
