//go:build !no_redis

package redis

import (
	"context"
	"sync"
	"sync/atomic"

	client "github.com/redis/go-redis/v9"
)

// writer publishes in the order it is told to: what waits while Redis answers goes
// together next.
type writer struct {
	b    *Broker
	wake chan struct{}
	size atomic.Int64 // bytes that wait

	mu    sync.Mutex
	queue []outgoing
}

// outgoing is a message on its way to a channel.
type outgoing struct {
	channel string
	body    []byte
	done    func(err error) // called once, from any goroutine
}

const writesOnce = 512

func newWriter(b *Broker) *writer { return &writer{b: b, wake: make(chan struct{}, 1)} }

func (w *writer) write(o outgoing) {
	w.size.Add(int64(len(o.body)))
	w.mu.Lock()
	w.queue = append(w.queue, o)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run publishes until the broker is closed.
func (w *writer) run() {
	for {
		select {
		case <-w.wake:
		case <-w.b.ctx.Done():
			w.refuse()
			return
		}
		for batch := w.next(); len(batch) > 0; batch = w.next() {
			w.publish(batch)
		}
	}
}

func (w *writer) next() []outgoing {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), writesOnce)
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	return batch
}

func (w *writer) publish(batch []outgoing) {
	ctx, cancel := context.WithTimeout(w.b.ctx, answerTime)
	defer cancel()
	pipe := w.b.client.Pipeline()
	answers := make([]*client.IntCmd, len(batch))
	for i := range batch {
		answers[i] = pipe.Publish(ctx, batch[i].channel, batch[i].body)
	}
	_, err := pipe.Exec(ctx)
	if !isRefusal(err) {
		w.b.noted(err)
	}
	for i := range batch {
		w.end(&batch[i], answers[i].Err())
	}
}

func (w *writer) end(o *outgoing, err error) {
	w.size.Add(-int64(len(o.body)))
	o.done(err)
}

// refuse ends what waits.
func (w *writer) refuse() {
	for batch := w.next(); len(batch) > 0; batch = w.next() {
		for i := range batch {
			w.end(&batch[i], client.ErrClosed)
		}
	}
}
