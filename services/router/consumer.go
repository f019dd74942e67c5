package router

import (
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// worker is a program that is connected to the mesh, shared by the lanes it
// has consumers in. Times are the service's (Service.clock).
type worker struct {
	id, name string
	told     ledger.Worker // the same, for the log
	held     atomic.Int64  // deliveries in its hands, over all lanes
	seen     atomic.Int64  // its last sign of life
}

// consumer is a subscription as a lane dispatches to it.
type consumer struct {
	protocol.Subscription
	q        *queue
	worker   *worker
	since    time.Time // of the registration; the newest one's policy is the queue's
	inflight int
	gone     bool // unsubscribed; what it holds may still come to an end

	filter     *filter.Filter
	nth        int  // of the queue's filters
	unreadable bool // the filter

	line  *line // whose jobs it takes, of a named queue
	asked int   // the concurrency that its worker asks for; 0: the queue's

	frames                   string // where its worker takes frames; empty: it does not
	timeout                  int64  // ns
	retries                  uint32
	timeoutText, retriesText string

	// A consumer that nobody listened for rests until quietUntil, longer each
	// time, and is then tried with a single delivery until provenAt.
	bounces    int
	quietUntil int64
	provenAt   int64
}

// proof is how long the first delivery after a rest goes alone: "no
// responders" comes back within a round trip.
const proof = 50 * time.Millisecond

const (
	restMin = 20 * time.Millisecond
	restMax = time.Second
)

func newConsumer(q *queue, w *worker, since time.Time, s protocol.Subscription) *consumer {
	c := &consumer{q: q, worker: w}
	c.update(since, s)
	return c
}

// update takes a new registration over.
func (c *consumer) update(since time.Time, s protocol.Subscription) {
	c.setFilter(&s)
	c.Subscription, c.since = s, since
	c.follow()
}

// follow takes over what the settings and the queue's broker say where the
// subscription says nothing.
func (c *consumer) follow() {
	c.limitTime()
	d := c.q.defaults()
	if c.RetriesDefault {
		c.MaxRetries = d.MaxRetries
	}
	if c.ConcurrencyDefault {
		c.Concurrency = d.Concurrency
	}
	c.retries = uint32(min(c.policy().maxRetries, math.MaxUint32))
	c.retriesText = strconv.FormatUint(uint64(c.retries), 10)
}

// limitTime sets how long its next deliveries may take.
func (c *consumer) limitTime() {
	ms := c.TimeoutMs
	if c.TimeoutDefault {
		ms = c.q.lane.s.setting().Observers.ActivationTimeoutMs
	}
	if ms <= 0 {
		ms = protocol.DefaultTimeoutMs
	}
	if c.VisibilityMs > 0 {
		ms = min(ms, c.VisibilityMs)
	}
	c.timeout = min(ms, math.MaxInt64/int64(time.Millisecond)) * int64(time.Millisecond)
	c.timeoutText = strconv.FormatInt(ms, 10)
}

// policy is how failures of its deliveries are answered.
func (c *consumer) policy() policy {
	p := policy{
		maxRetries: c.MaxRetries, backoffMs: c.BackoffMs,
		fifo: c.Type == protocol.TypeFIFO, onDeadLetter: c.OnDeadLetter, maxPriority: c.MaxPriority,
		Tuning: c.Tuning,
	}
	if p.maxRetries < 1 {
		p.maxRetries = protocol.DefaultMaxRetries
	}
	if p.backoffMs < 0 {
		p.backoffMs = 0
	}
	return p
}

// free says whether the consumer takes one more delivery now.
func (c *consumer) free(now int64) bool {
	if c.Draining || c.unreadable || c.inflight >= c.Concurrency || now < c.quietUntil {
		return false
	}
	return now >= c.provenAt || c.inflight == 0
}

// rest keeps deliveries from a consumer that was not there or handed one back.
func (c *consumer) rest(now int64) {
	if now < c.quietUntil {
		return // several deliveries of one burst came back
	}
	c.quietUntil = now + int64(min(restMin<<min(c.bounces, 10), restMax))
	c.provenAt = c.quietUntil + int64(proof)
	c.bounces++
}

// proven ends the consumer's rest: it showed that it is there.
func (c *consumer) proven() {
	c.bounces, c.quietUntil, c.provenAt = 0, 0, 0
}

// policy is what becomes of a queue's failures: that of the subscription
// delivered to, or for a delivery whose subscription is not known any more the
// newest one's.
type policy struct {
	maxRetries int
	backoffMs  int64

	// Of the queue alone, except for BackoffType:
	fifo         bool
	onDeadLetter protocol.OnDeadLetter
	maxPriority  uint8
	protocol.Tuning
}

// defaultPolicy is that of a queue without a subscription. A policy is replaced,
// never changed.
var defaultPolicy = policy{maxRetries: protocol.DefaultMaxRetries, backoffMs: protocol.DefaultBackoffMs}
