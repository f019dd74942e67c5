package remote

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker"
)

const (
	againMin = 100 * time.Millisecond // before a session after one that was lost
	againMax = 3 * time.Second
	// steady is how long a session lives that was none that the broker ends at once.
	steady = 5 * time.Second
)

// Taking is a Consumption that takes a queue's messages in one session after another,
// as long as any are wanted. What was delivered in one is settled there or not at all.
type Taking struct {
	log    *slog.Logger
	queue  string          // what the broker calls it
	ctx    context.Context //nolint:containedctx // its life
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	demand  broker.Demand // with no window nothing more is taken
	made    Made
	topic   string
	now     Taker // nil: there is none
	changed chan struct{}
}

var _ Consumption = (*Taking)(nil)

// Taker is a session as a Taking sees it. It is told what has changed.
type Taker interface {
	Want(window int)
	Receive(topic string)
}

// NewTaking is for a queue, until ctx ends or it is stopped.
func NewTaking(ctx context.Context, log *slog.Logger, queue string) *Taking {
	t := &Taking{log: log, queue: queue, ended: make(chan struct{}), changed: make(chan struct{}, 1)}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// Want implements Consumption.
func (t *Taking) Want(d broker.Demand, made Made) {
	t.mu.Lock()
	t.demand, t.made = d, made
	x := t.now
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
	if x != nil {
		x.Want(d.Window)
	}
}

// Receive implements Consumption.
func (t *Taking) Receive(topic string) {
	t.mu.Lock()
	t.topic = topic
	x := t.now
	t.mu.Unlock()
	if x != nil {
		x.Receive(topic)
	}
}

// Stop implements Consumption.
func (t *Taking) Stop() { t.cancel() }

// Wait implements Consumption.
func (t *Taking) Wait() { <-t.ended }

// Run consumes until it is stopped. once does so in one session; with nil it says that
// nothing more was wanted.
func (t *Taking) Run(once func(ctx context.Context) error) {
	defer close(t.ended)
	wait := againMin
	for t.awaited() {
		began := time.Now()
		err := once(t.ctx)
		if err == nil || time.Since(began) > steady {
			wait = againMin
		}
		if err == nil {
			continue
		}
		t.log.Debug("a queue is consumed again", "queue", t.queue, "error", err)
		Sleep(t.ctx, wait)
		wait = min(2*wait, againMax)
	}
}

// awaited waits until messages are wanted; false: it was stopped.
func (t *Taking) awaited() bool {
	for t.Window() == 0 {
		select {
		case <-t.changed:
		case <-t.ctx.Done():
			return false
		}
	}
	return t.ctx.Err() == nil
}

// Window is how many messages are wanted.
func (t *Taking) Window() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.demand.Window
}

// Wanted is what the queue is, and which topic it receives.
func (t *Taking) Wanted() (made Made, topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made, t.topic
}

// Enter begins a session with what is wanted now, Leave ends it.
func (t *Taking) Enter(x Taker) {
	t.mu.Lock()
	t.now = x
	window, topic := t.demand.Window, t.topic
	t.mu.Unlock()
	x.Want(window)
	x.Receive(topic)
}

// Leave has nobody be told any more.
func (t *Taking) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = nil
}
