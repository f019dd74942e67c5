//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
)

const (
	// patience is how long nothing at all may be confirmed on a channel of a
	// connection that lives. A broker that is only slow confirms one thing after
	// the other.
	patience = 10 * time.Second
	glance   = patience / 10
	// mostPending bounds what is unconfirmed on a channel. A channel of the
	// broker's that stands still takes 400 messages; after that its connection
	// stands still.
	mostPending = 380
)

// passage is the life of one channel of a writer's.
type passage struct {
	w         *writer
	ch        *amqp.Channel
	closed    <-chan *amqp.Error
	sent      chan *amqp.DeferredConfirmation // of what is pending, in order
	listening sync.WaitGroup

	mu      sync.Mutex
	pending []*outgoing   // written, in order
	room    chan struct{} // there is some again

	oldest  *outgoing // when it was looked last
	glances int       // since when nothing was confirmed
}

func newPassage(w *writer, ch *amqp.Channel) (*passage, error) {
	p := &passage{w: w, ch: ch, room: make(chan struct{}, 1), sent: make(chan *amqp.DeferredConfirmation, mostPending), closed: ch.NotifyClose(make(chan *amqp.Error, 1))}
	if err := ch.Confirm(false); err != nil {
		p.abandon()
		return nil, err
	}
	// Returns are not buffered: one has to be taken before the confirm that
	// follows it is seen.
	returns := ch.NotifyReturn(make(chan amqp.Return))
	p.listening.Go(func() { p.listen(returns) })
	return p, nil
}

// run writes until the channel or ctx ends, or the channel is silent.
func (p *passage) run(ctx context.Context) error {
	defer close(p.sent)
	look := time.NewTicker(glance)
	defer look.Stop()
	p.write()
	for {
		select {
		case <-p.w.wake:
			p.write()
		case <-p.room:
			p.write()
		case <-look.C:
			if p.isSilent() {
				return errSilent
			}
		case err := <-p.closed:
			return cause(err)
		case <-ctx.Done():
			p.settle()
			return p.ch.Close()
		}
	}
}

// write writes what waits, as far as there is room. By the end of it there may be more
// room, of which nobody tells as long as half of it was never in use.
func (p *passage) write() {
	some := p.w.take(mostPending - p.unconfirmed())
	if len(some) == 0 {
		return
	}
	p.w.link.together(func() {
		for _, o := range some {
			p.send(o)
		}
	})
	p.w.awake()
}

// isSilent says whether nothing was confirmed for long that should have been.
func (p *passage) isSilent() bool {
	p.mu.Lock()
	var oldest *outgoing
	if len(p.pending) > 0 {
		oldest = p.pending[0]
	}
	p.mu.Unlock()
	if oldest == nil || oldest != p.oldest || p.w.link.away() != nil {
		p.oldest, p.glances = oldest, 0
		return false
	}
	p.glances++
	return p.glances > int(patience/glance)
}

// settle waits for what is unconfirmed, as long as the channel lives.
func (p *passage) settle() {
	wait, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	for p.unconfirmed() > 0 && !p.ch.IsClosed() && mesh.Pause(wait, againMin/10) {
	}
}

// abandon closes the channel, which may take as long as the broker does nothing
// on it.
func (p *passage) abandon() {
	if err := p.ch.Close(); err != nil {
		p.w.link.b.log.Debug("a channel did not close", "error", err)
	}
	p.listening.Wait()
}

func (p *passage) unconfirmed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending)
}

func (p *passage) takePending() []*outgoing {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.pending
	p.pending = nil
	return all
}

// send writes one message. It is pending before the broker can have it.
func (p *passage) send(o *outgoing) {
	p.mu.Lock()
	p.pending = append(p.pending, o)
	p.mu.Unlock()
	confirm, err := p.ch.PublishWithDeferredConfirm(o.exchange, o.key, true, false, o.message)
	switch {
	case err == nil:
		p.sent <- confirm
	case !p.ch.IsClosed():
		p.withdraw(o)
		p.w.finish([]*outgoing{o}, fmt.Errorf("it cannot be written: %w", err))
	}
}

// withdraw takes back what was not written: the newest.
func (p *passage) withdraw(o *outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.pending); n > 0 && p.pending[n-1] == o {
		p.pending = p.pending[:n-1]
	}
}

// listen follows what becomes of what was written. A message that no queue took is
// returned, and then confirmed like the others. What is not confirmed when the channel
// is closed stays pending.
func (p *passage) listen(returns <-chan amqp.Return) {
	for c := range p.sent {
		for confirmed := false; !confirmed; {
			select {
			case r, open := <-returns:
				if !open {
					returns = nil
					continue
				}
				p.mark(&r)
			case <-c.Done():
				confirmed = true
			}
		}
		if !c.Acked() && p.ch.IsClosed() {
			return
		}
		if o := p.next(); o != nil {
			p.w.finish([]*outgoing{o}, o.result(c.Acked()))
		}
	}
}

// mark notes which message came back.
func (p *passage) mark(r *amqp.Return) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.pending {
		if !o.returned && o.message.MessageId == r.MessageId && o.key == r.RoutingKey && o.exchange == r.Exchange {
			o.returned = true
			return
		}
	}
}

// next takes the oldest pending message: confirms come in order.
func (p *passage) next() *outgoing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		return nil
	}
	o := p.pending[0]
	p.pending[0] = nil
	if p.pending = p.pending[1:]; len(p.pending) == mostPending/2 {
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
	return o
}
