//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// What may become of a message that is written, besides what may on any broker.
var (
	errNacked = fmt.Errorf("%w: it is full, or a policy limits it", remote.ErrRefused)
	errSilent = errors.New("the queue confirms nothing, as one that has lost its leader")
)

// target is where a message is written to.
type target struct{ exchange, key string }

// outgoing is a message on its way to the broker. done is called once, without
// waiting for anybody: without an error the broker has it, and a queue took it.
type outgoing struct {
	target
	queues  []string // the target's, unless it is a queue itself
	message amqp.Publishing
	done    func(err error)

	returned bool
}

// outgoingBytes is about what a message takes beside its body.
const outgoingBytes = 512

func (o *outgoing) size() int64 { return int64(len(o.message.Body)) + outgoingBytes }

func (o *outgoing) result(confirmed bool) error {
	switch {
	case !confirmed:
		return errNacked
	case o.returned:
		return remote.ErrNowhere
	}
	return nil
}

// writer writes messages in order, on a channel of its own, without waiting for
// one to be confirmed before the next. The broker does nothing on a channel
// while a queue that has lost its leader does not answer it: what is published
// to such a queue is refused as soon as that shows, until it answers again, so
// that it holds up the others once and not for long.
type writer struct {
	link *link

	mu      sync.Mutex
	waiting []*outgoing
	size    int64 // bytes that wait or are unconfirmed
	wake    chan struct{}
	silent  map[target]struct{}
}

func newWriter(l *link) *writer {
	return &writer{link: l, wake: make(chan struct{}, 1), silent: make(map[target]struct{})}
}

// write takes a message.
func (w *writer) write(o *outgoing) {
	w.mu.Lock()
	_, silent := w.silent[o.target]
	if !silent {
		w.waiting = append(w.waiting, o)
		w.size += o.size()
	}
	w.mu.Unlock()
	if silent {
		o.done(errSilent)
		return
	}
	w.awake()
}

func (w *writer) awake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// backlog is how many bytes are on their way.
func (w *writer) backlog() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// take takes as many as there are, n at most.
func (w *writer) take(n int) []*outgoing {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = max(0, min(n, len(w.waiting)))
	some := w.waiting[:n:n]
	if w.waiting = w.waiting[n:]; len(w.waiting) == 0 {
		w.waiting = nil
	}
	return some
}

// finish ends messages with one result.
func (w *writer) finish(all []*outgoing, err error) {
	size := int64(0)
	for _, o := range all {
		size += o.size()
	}
	w.mu.Lock()
	w.size -= size
	w.mu.Unlock()
	for _, o := range all {
		o.done(err)
	}
}

// run writes until ctx ends and what was taken by then is done.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		ch, err := w.link.channel(ctx)
		if err == nil {
			err = w.passage(ctx, ch)
		}
		if errors.Is(err, errSilent) {
			continue
		}
		w.finish(w.take(math.MaxInt), remote.ErrNotWritten)
		if err != nil && ctx.Err() == nil {
			mesh.Pause(ctx, againMin)
		}
	}
}

// passage writes on one channel until that or ctx ends.
func (w *writer) passage(ctx context.Context, ch *amqp.Channel) error {
	p, err := newPassage(w, ch)
	if err != nil {
		return err
	}
	err = p.run(ctx)
	if errors.Is(err, errSilent) {
		w.avoid(p.oldest)
		w.link.b.running.Go(p.abandon)
	} else {
		p.listening.Wait()
	}
	w.finish(p.takePending(), remote.ErrUnknown)
	return err
}

// avoid refuses what is written where o was, until its queues answer.
func (w *writer) avoid(o *outgoing) {
	w.mu.Lock()
	_, known := w.silent[o.target]
	w.silent[o.target] = struct{}{}
	var refused []*outgoing
	w.waiting, refused = part(w.waiting, func(other *outgoing) bool { return other.target != o.target })
	w.mu.Unlock()
	w.finish(refused, errSilent)
	if known {
		return
	}
	queues := o.queues
	if queues == nil {
		queues = []string{o.key}
	}
	b := w.link.b
	b.log.Warn("a queue confirms nothing: what is published to it is refused until it answers", "code", protocol.CodeUnavailable, "exchange", o.exchange, "queue", o.key)
	b.running.Go(func() {
		if b.awaitAnswer(b.ctx, queues) {
			w.trust(o.target)
			b.log.Info("a queue that confirmed nothing answers again", "exchange", o.exchange, "queue", o.key)
		}
	})
}

func (w *writer) trust(to target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.silent, to)
}

// part divides a list in two.
func part(all []*outgoing, keep func(o *outgoing) bool) (kept, others []*outgoing) {
	for _, o := range all {
		if keep(o) {
			kept = append(kept, o)
		} else {
			others = append(others, o)
		}
	}
	return kept, others
}
