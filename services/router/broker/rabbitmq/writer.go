//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
)

// What may become of a message that is written.
var (
	errUnroutable = errors.New("no queue took it")
	errNacked     = errors.New("the broker refused it")
	errUnknown    = errors.New("the connection was lost before the broker confirmed it")
	errNotWritten = errors.New("the connection was lost before it was written")
)

// outgoing is a message on its way to the broker. done is called once, from
// another goroutine: without an error the broker has it, and a queue took it
// unless anybody is set.
type outgoing struct {
	exchange, key string
	message       amqp.Publishing
	anybody       bool // nobody need be there to take it: a topic's
	done          func(err error)

	returned bool
}

// writer writes messages in order, on a channel of its own, without waiting for
// one to be confirmed before the next.
type writer struct {
	link *link

	mu      sync.Mutex
	waiting []*outgoing
	size    int64 // bytes that wait or are unconfirmed
	wake    chan struct{}

	pendingMu sync.Mutex
	pending   []*outgoing // written, in order
}

func newWriter(l *link) *writer { return &writer{link: l, wake: make(chan struct{}, 1)} }

// write takes a message.
func (w *writer) write(o *outgoing) {
	w.mu.Lock()
	w.waiting = append(w.waiting, o)
	w.size += int64(len(o.message.Body)) + outgoingBytes
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// outgoingBytes is about what a message takes beside its body.
const outgoingBytes = 512

// backlog is how many bytes are on their way.
func (w *writer) backlog() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// finish ends messages with one result.
func (w *writer) finish(all []*outgoing, err error) {
	size := int64(0)
	for _, o := range all {
		size += int64(len(o.message.Body)) + outgoingBytes
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
			err = w.session(ctx, ch)
		}
		w.finish(w.takePending(), errUnknown)
		w.finish(w.take(), errNotWritten)
		if err != nil && ctx.Err() == nil {
			mesh.Pause(ctx, againMin)
		}
	}
}

// session writes on one channel until that or ctx ends.
func (w *writer) session(ctx context.Context, ch *amqp.Channel) error {
	// Returns are not buffered: one has to be taken before the confirm that
	// follows it is seen.
	returns := ch.NotifyReturn(make(chan amqp.Return))
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1024))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	var listening sync.WaitGroup
	listening.Go(func() { w.listen(returns, confirms) })
	defer listening.Wait()
	for {
		select {
		case <-w.wake:
			for _, o := range w.take() {
				w.send(ch, o)
			}
		case err := <-closed:
			return cause(err)
		case <-ctx.Done():
			w.settle(closed)
			return ch.Close()
		}
	}
}

// settle waits for what is unconfirmed, as long as the channel lives.
func (w *writer) settle(closed <-chan *amqp.Error) {
	wait, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	for w.unconfirmed() > 0 && mesh.Pause(wait, againMin/10) {
		select {
		case <-closed: //nolint:errcheck // watch tells it
			return
		default:
		}
	}
}

func (w *writer) unconfirmed() int {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	return len(w.pending)
}

func (w *writer) take() []*outgoing {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.waiting
	w.waiting = nil
	return all
}

func (w *writer) takePending() []*outgoing {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	all := w.pending
	w.pending = nil
	return all
}

// send writes one message. It is pending before the broker can have it.
func (w *writer) send(ch *amqp.Channel, o *outgoing) {
	w.pendingMu.Lock()
	w.pending = append(w.pending, o)
	w.pendingMu.Unlock()
	if err := ch.Publish(o.exchange, o.key, true, false, o.message); err != nil && !ch.IsClosed() {
		w.withdraw(o)
		w.finish([]*outgoing{o}, fmt.Errorf("it cannot be written: %w", err))
	}
}

// withdraw takes back what was not written: the newest.
func (w *writer) withdraw(o *outgoing) {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	if n := len(w.pending); n > 0 && w.pending[n-1] == o {
		w.pending = w.pending[:n-1]
	}
}

// listen follows what becomes of what was written. A message that no queue took
// is returned, and then confirmed like the others.
func (w *writer) listen(returns <-chan amqp.Return, confirms <-chan amqp.Confirmation) {
	for returns != nil || confirms != nil {
		select {
		case r, open := <-returns:
			if !open {
				returns = nil
				continue
			}
			w.mark(&r)
		case c, open := <-confirms:
			if !open {
				confirms = nil
				continue
			}
			if o := w.next(); o != nil {
				w.finish([]*outgoing{o}, o.result(c.Ack))
			}
		}
	}
}

// mark notes which message came back.
func (w *writer) mark(r *amqp.Return) {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	for _, o := range w.pending {
		if !o.returned && o.message.MessageId == r.MessageId && o.key == r.RoutingKey && o.exchange == r.Exchange {
			o.returned = true
			return
		}
	}
}

// next takes the oldest pending message: confirms come in order.
func (w *writer) next() *outgoing {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	if len(w.pending) == 0 {
		return nil
	}
	o := w.pending[0]
	w.pending[0] = nil
	w.pending = w.pending[1:]
	return o
}

func (o *outgoing) result(confirmed bool) error {
	switch {
	case !confirmed:
		return errNacked
	case o.returned && !o.anybody:
		return errUnroutable
	}
	return nil
}
