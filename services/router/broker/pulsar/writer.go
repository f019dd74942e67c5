//go:build !no_pulsar

package pulsar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

const (
	// atOnce is how many messages of a topic are on their way at once.
	atOnce = 1000
	// confirmWait is how long the broker may take to confirm one.
	confirmWait = 30 * time.Second
	// idleFor is how long nothing is written to a topic before its producer is closed.
	idleFor = time.Minute
	// Before connecting again.
	againMin = 100 * time.Millisecond
	againMax = 3 * time.Second
)

// patience is how the client connects again.
type patience struct{ wait time.Duration }

func newPatience() backoff.Policy { return &patience{} }

// Next implements backoff.Policy.
func (p *patience) Next() time.Duration {
	p.wait = min(max(2*p.wait, againMin), againMax)
	return p.wait/2 + rand.N(p.wait/2) //nolint:gosec // it only spreads them
}

// IsMaxBackoffReached implements backoff.Policy.
func (p *patience) IsMaxBackoffReached() bool { return p.wait >= againMax }

// Reset implements backoff.Policy.
func (p *patience) Reset() { p.wait = 0 }

// outgoing is a message to be written. done is called once, from any goroutine:
// with nil when the broker has confirmed it.
type outgoing struct {
	ctx     context.Context //nolint:containedctx // of who wants it to be written
	message *pulsar.ProducerMessage
	done    func(err error)
}

// writers are those of the topics that are written to.
type writers struct {
	mu  sync.Mutex
	all map[string]*writer
}

// writer writes to one topic, in the order in which it is told, and sends each
// message by itself, so that each can be settled, counted and found by itself.
type writer struct {
	b     *Broker
	topic string
	wake  chan struct{}
	leave chan struct{} // closed when it is to end
	left  chan struct{} // closed when it has

	mu       sync.Mutex
	waiting  []*outgoing
	inFlight int
	oldest   time.Time // when something was confirmed last, or nothing was in flight
}

// producer is one that is not used any more once its connection is lost. The client
// would make the connection again, and has been seen to write with a producer that it
// is about to change.
type producer struct {
	pulsar.Producer
	lost atomic.Bool
}

// write has a message written to a topic.
func (b *Broker) write(topic string, o *outgoing) {
	b.writers.mu.Lock()
	defer b.writers.mu.Unlock()
	if b.writers.all == nil {
		b.writers.all = make(map[string]*writer)
	}
	w := b.writers.all[topic]
	if w == nil {
		w = &writer{b: b, topic: topic, wake: make(chan struct{}, 1), leave: make(chan struct{}), left: make(chan struct{})}
		b.writers.all[topic] = w
		b.running.Go(w.run)
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, o)
	w.mu.Unlock()
	w.nudge()
}

// leave closes the producer of a topic.
func (w *writers) leave(topic string) {
	w.mu.Lock()
	at := w.all[topic]
	delete(w.all, topic)
	w.mu.Unlock()
	if at == nil {
		return
	}
	close(at.leave)
	<-at.left
}

// retire takes a writer out that has nothing to do; false: it has.
func (w *writers) retire(at *writer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at.mu.Lock()
	defer at.mu.Unlock()
	if len(at.waiting)+at.inFlight > 0 {
		return false
	}
	if w.all[at.topic] == at {
		delete(w.all, at.topic)
	}
	return true
}

func (w *writer) nudge() { signal(w.wake) }

// run writes until nothing was to be written for a while.
func (w *writer) run() {
	defer close(w.left)
	var p *producer
	defer func() {
		if p != nil {
			p.Close()
		}
		w.refuse(remote.ErrNotWritten)
	}()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for idle := time.Now(); ; {
		select {
		case <-w.wake:
			idle = time.Now()
		case <-look.C:
			if time.Since(idle) > idleFor && w.b.writers.retire(w) {
				return
			}
		case <-w.leave:
			return
		case <-w.b.ctx.Done():
			return
		}
		p = w.producer(p)
		if p != nil {
			w.send(p)
		}
	}
}

// producer is the one that is written with, another if the one there is cannot be
// used any more.
func (w *writer) producer(p *producer) *producer {
	w.mu.Lock()
	late := w.inFlight > 0 && time.Since(w.oldest) > confirmWait
	wanted := len(w.waiting) > 0
	w.mu.Unlock()
	if p != nil && (late || p.lost.Load()) {
		p.Close() // what is in flight is unknown
		p = nil
	}
	if p != nil || !wanted {
		return p
	}
	made, err := w.produce()
	if err != nil {
		w.refuse(fmt.Errorf("%w (%w)", remote.ErrNotWritten, err))
		return nil
	}
	return made
}

// produce makes a producer. The client asks how it is to connect again when the
// connection is lost, and then does not.
func (w *writer) produce() (*producer, error) {
	p := &producer{}
	var err error
	p.Producer, err = w.b.client.CreateProducer(pulsar.ProducerOptions{
		Topic: w.topic, SendTimeout: -1, MaxPendingMessages: 2 * atOnce, DisableBatching: true, MaxReconnectToBroker: new(uint(0)),
		BackOffPolicyFunc: func() backoff.Policy {
			p.lost.Store(true)
			w.nudge()
			return newPatience()
		},
	})
	return p, err
}

// refuse has nobody wait for what is not written.
func (w *writer) refuse(err error) {
	w.mu.Lock()
	waiting := w.waiting
	w.waiting = nil
	w.mu.Unlock()
	for _, o := range waiting {
		o.done(err)
	}
}

// send writes what waits.
func (w *writer) send(p *producer) {
	for {
		w.mu.Lock()
		if len(w.waiting) == 0 || w.inFlight >= atOnce || p.lost.Load() {
			w.mu.Unlock()
			return
		}
		o := w.waiting[0]
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
		if w.inFlight == 0 {
			w.oldest = time.Now()
		}
		w.inFlight++
		w.mu.Unlock()
		if o.ctx.Err() != nil {
			w.sent(p, o, remote.ErrNotWritten)
			continue
		}
		p.SendAsync(context.Background(), o.message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { w.sent(p, o, err) })
	}
}

// sent answers for a message.
func (w *writer) sent(p *producer, o *outgoing, err error) {
	if unusable(err) {
		p.lost.Store(true)
	}
	w.mu.Lock()
	w.inFlight--
	w.oldest = time.Now()
	more := len(w.waiting) > 0 && w.inFlight <= atOnce/2
	w.mu.Unlock()
	if more {
		w.nudge()
	}
	o.done(whatBecame(err))
}

// unusable says whether a producer that failed so fails always.
func unusable(err error) bool {
	return errors.Is(err, pulsar.ErrProducerClosed) || errors.Is(err, pulsar.ErrTopicNotfound) ||
		errors.Is(err, pulsar.ErrTopicTerminated) || errors.Is(err, pulsar.ErrProducerFenced)
}

// whatBecame says so in the words of the stores.
func whatBecame(err error) error {
	switch {
	case err == nil, errors.Is(err, remote.ErrNotWritten):
		return err
	case errors.Is(err, pulsar.ErrProducerClosed):
		return remote.ErrUnknown
	default:
		return fmt.Errorf("%w: %w", remote.ErrRefused, err)
	}
}
