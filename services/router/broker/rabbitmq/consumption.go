//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// arrivals is how many deliveries are given to the lane at once, at most.
const arrivals = 256

// consumption takes a queue's messages, on a channel of its own. It goes on over
// lost channels and connections; what was delivered on one is settled there or
// not at all.
type consumption struct {
	s      *store
	link   *link
	place  *place
	cancel context.CancelFunc

	mu      sync.Mutex
	demand  broker.Demand // with no window nothing more is taken
	made    kind
	topic   string
	changed chan struct{}
}

// delivered is what the broker delivers.
type delivered = amqp.Delivery

// session is the life of one channel.
type session struct {
	c    *consumption
	ch   *amqp.Channel
	gone atomic.Bool // nothing is settled on it any more

	mu       sync.Mutex
	settling []settling
	wake     chan struct{}
	settled  map[uint64]struct{} // above lowest
	lowest   uint64              // all up to this one are
	tag      int                 // of the consumer: counts them
	first    int                 // messages that come together, so that the most urgent is first
}

// settling is a message to be settled.
type settling struct {
	tag     uint64
	requeue bool
	done    func(taken bool) // whether the channel took it
}

// settle has a delivery settled. done is called from another goroutine, or not
// at all if the session ends before.
func (x *session) settle(s settling) {
	x.mu.Lock()
	x.settling = append(x.settling, s)
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// want changes how many messages are taken at once.
func (c *consumption) want(d broker.Demand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := c.demand.Window == d.Window
	c.demand = d
	if same {
		return
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *consumption) receive(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topic = topic
}

// establish makes sure that the queue is there.
func (c *consumption) establish(ctx context.Context) error {
	c.mu.Lock()
	topic := c.topic
	c.mu.Unlock()
	return c.s.b.establish(ctx, c.place.names, c.made, topic)
}

func (c *consumption) wanted() broker.Demand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.demand
}

// run consumes until ctx ends.
func (c *consumption) run(ctx context.Context) {
	defer c.link.channels.Add(-1)
	wait := againMin
	for ctx.Err() == nil {
		err := c.once(ctx)
		if ctx.Err() != nil {
			return
		}
		c.tell(err)
		mesh.Pause(ctx, wait)
		wait = min(2*wait, againMax)
	}
}

// tell says that a channel ended. The end of a connection is told by itself.
func (c *consumption) tell(err error) {
	log, queue := c.s.b.log, c.place.names.queue
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case ok && e.Code == amqp.PreconditionFailed && strings.Contains(e.Reason, "timed out"):
		log.Error("a handler runs longer than RabbitMQ waits: its message is delivered again; set RabbitMQ's consumer_timeout above the longest handler", "code", protocol.CodeTimeout, "queue", queue, "error", err)
	case c.link.away() != nil, ok && !e.Recover:
		log.Debug("a queue's channel was closed and is opened again", "queue", queue, "error", err)
	default:
		log.Warn("a queue's channel was closed and is opened again", "queue", queue, "error", err)
	}
}

// once consumes on one channel.
func (c *consumption) once(ctx context.Context) error {
	if err := c.establish(ctx); err != nil {
		return err
	}
	ch, err := c.link.channel(ctx)
	if err != nil {
		return err
	}
	x := &session{c: c, ch: ch, wake: make(chan struct{}, 1), settled: make(map[uint64]struct{})}
	err = x.run(ctx)
	if !ch.IsClosed() {
		err = errors.Join(err, ch.Close()) // what it has goes back
	}
	x.gone.Store(true)
	x.abandon()
	c.s.post(func() { c.s.lost(x) })
	return err
}

// run takes and settles until the channel or ctx ends.
func (x *session) run(ctx context.Context) error {
	closed := x.ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := x.consume()
	if err != nil {
		return err
	}
	for {
		select {
		case d, open := <-deliveries:
			if !open { // the queue was deleted, or the channel is about to end
				deliveries = nil
				if err := x.ended(closed); err != nil {
					return err
				}
				continue
			}
			x.deliver(d, deliveries)
		case <-x.wake:
			x.flush()
		case <-x.c.changed:
			if deliveries, err = x.change(deliveries); err != nil {
				return err
			}
		case err := <-closed:
			return cause(err)
		case <-ctx.Done():
			x.flush()
			return x.end()
		}
	}
}

// end closes the channel. What was settled last is on its way to the queue, which
// does not take it from a channel that is gone.
func (x *session) end() error {
	if x.tag > 0 && x.lowest+uint64(len(x.settled)) > 0 {
		mesh.Pause(context.Background(), lastSettled)
	}
	return x.ch.Close()
}

const lastSettled = 50 * time.Millisecond

// ended says why no deliveries come any more. With nothing wanted that is as it
// should be.
func (x *session) ended(closed <-chan *amqp.Error) error {
	select {
	case err := <-closed:
		return cause(err)
	default:
	}
	if x.c.wanted().Window == 0 {
		return nil
	}
	return fmt.Errorf("the broker ended the consumer of %s: the queue was deleted", x.c.place.names.queue)
}

// consume begins to take messages, if any are wanted.
func (x *session) consume() (<-chan amqp.Delivery, error) {
	prefetch := min(x.c.wanted().Window, math.MaxUint16)
	if prefetch == 0 {
		return nil, nil //nolint:nilnil // nothing comes of a nil channel
	}
	if err := x.ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	x.tag++
	x.first = 0
	if x.c.wanted().MaxPriority > 0 {
		q, err := x.ch.QueueDeclarePassive(x.c.place.names.queue, true, false, false, false, nil)
		if err != nil {
			return nil, err
		}
		x.first = min(q.Messages, prefetch)
	}
	return x.ch.Consume(x.c.place.names.queue, x.name(), false, false, false, false, nil)
}

func (x *session) name() string { return fmt.Sprintf("waybill-%d", x.tag) }

// change begins anew with another prefetch. What was delivered is still settled
// on the channel; what comes until the consumer has ended is taken too.
func (x *session) change(deliveries <-chan amqp.Delivery) (<-chan amqp.Delivery, error) {
	if deliveries != nil {
		var ending sync.WaitGroup
		var err error
		ending.Go(func() { err = x.ch.Cancel(x.name(), false) })
		for d := range deliveries {
			x.deliver(d, nil)
		}
		ending.Wait()
		if err != nil {
			return nil, err
		}
	}
	return x.consume()
}

// deliver gives the lane a delivery, with those that have come already.
func (x *session) deliver(d amqp.Delivery, more <-chan amqp.Delivery) {
	batch := []delivered{d}
	if x.first > 1 {
		batch, more = x.together(batch, more)
	}
	for more != nil && len(batch) < arrivals {
		select {
		case d, open := <-more:
			if !open {
				more = nil
				continue
			}
			batch = append(batch, d)
			continue
		default:
		}
		break
	}
	x.c.s.post(func() { x.c.s.arrived(x, batch) })
}

// together waits for the first messages of a queue with priorities, a moment at
// most: they are not in order on the broker, but they are in the lane.
func (x *session) together(batch []delivered, more <-chan amqp.Delivery) ([]delivered, <-chan amqp.Delivery) {
	t := time.NewTimer(firstWait)
	defer t.Stop()
	for want := x.first; len(batch) < want && more != nil; {
		select {
		case d, open := <-more:
			if !open {
				more = nil
				continue
			}
			batch = append(batch, d)
		case <-t.C:
			want = 0
		}
	}
	x.first = 0
	return batch, more
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
	x.report(all, x.settleAll(all) == nil)
}

// settleAll tells the broker. All up to the oldest delivery that is not settled
// are one acknowledgement: for quorum queues each is a command to be replicated.
func (x *session) settleAll(all []settling) error {
	var single []uint64
	var errs []error
	for _, s := range all {
		if s.requeue {
			errs = append(errs, x.ch.Reject(s.tag, true))
		} else {
			single = append(single, s.tag)
		}
		x.settled[s.tag] = struct{}{}
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

// abandon tells of what was not settled.
func (x *session) abandon() {
	x.mu.Lock()
	all := x.settling
	x.settling = nil
	x.mu.Unlock()
	if len(all) > 0 {
		x.report(all, false)
	}
}

func (x *session) report(all []settling, taken bool) {
	x.c.s.post(func() {
		for _, s := range all {
			if s.done != nil {
				s.done(taken)
			}
		}
	})
}
