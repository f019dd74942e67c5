//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// Depth says how much the broker has of a queue. What is being looked at by
// Browse or Act counts too.
func (b *Broker) Depth(ctx context.Context, queue string, delays []int64) (broker.Depth, error) {
	n, err := b.namesOf(queue)
	if err != nil {
		return broker.Depth{}, err
	}
	var d broker.Depth
	if d.Ready, err = b.depthOf(ctx, n.queue); err != nil {
		return d, err
	}
	for _, ms := range delays {
		name, err := b.holding(n, ms)
		if err != nil {
			return d, err
		}
		waiting, err := b.depthOf(ctx, name)
		if err != nil {
			return d, err
		}
		d.Waiting += waiting
	}
	defer b.shelves.take(n.dead)()
	d.Dead, err = b.depthOf(ctx, n.dead)
	return d, err
}

// Browse reads the oldest dead letters. They are taken without being settled on
// a channel that is closed then, so the broker has them back in their order.
func (b *Broker) Browse(ctx context.Context, queue string, most int, wanted func(*broker.Letter) bool) (letters []broker.Letter, err error) {
	_, err = b.read(ctx, queue, int64(most), func(_ *amqp.Channel, d *amqp.Delivery) (int64, error) {
		if l := letterOf(d, queue); wanted(&l) {
			letters = append(letters, l)
		}
		return 0, nil
	}, func() (int64, error) { return 0, nil })
	return letters, err
}

// read takes dead letters, at most so many and none that came after it began, on
// a channel of their own. f has each and end comes last; they say how many they
// have settled. The others go back.
func (b *Broker) read(ctx context.Context, queue string, most int64, f func(ch *amqp.Channel, d *amqp.Delivery) (int64, error), end func() (int64, error)) (settled int64, err error) {
	n, err := b.namesOf(queue)
	if err != nil {
		return 0, err
	}
	defer b.shelves.take(n.dead)()
	there, err := b.depthOf(ctx, n.dead)
	if err != nil || there == 0 {
		return 0, err
	}
	ch, err := b.out.channel(ctx)
	if err != nil {
		return 0, b.failed("a channel could not be opened", err)
	}
	for range min(most, there) {
		d, ok, err := ch.Get(n.dead, false)
		if err != nil || !ok {
			return settled, errors.Join(b.failed("the dead letters in "+n.dead+" could not be read", err), b.putBack(ctx, ch, n.dead, there-settled))
		}
		more, err := f(ch, &d)
		settled += more
		if err = errors.Join(err, ctx.Err()); err != nil {
			return settled, errors.Join(err, b.putBack(ctx, ch, n.dead, there-settled))
		}
	}
	more, err := end()
	settled += more
	return settled, errors.Join(err, b.putBack(ctx, ch, n.dead, there-settled))
}

// putBack gives back what was taken and not settled, and waits until the broker
// counts it again: until then nobody else would find it.
func (b *Broker) putBack(ctx context.Context, ch *amqp.Channel, queue string, left int64) error {
	if !ch.IsClosed() {
		if err := ch.Close(); err != nil {
			return b.failed("dead letters could not be given back", err)
		}
	}
	for range backLooks {
		there, err := b.depthOf(ctx, queue)
		if err != nil || there >= left || !sleep(ctx, backLook) {
			return err
		}
	}
	return nil // somebody else takes them
}

const (
	backLook  = 5 * time.Millisecond
	backLooks = 400
)

// letterOf reads a dead letter. One that the broker itself has given up says so
// in the broker's words.
func letterOf(d *amqp.Delivery, queue string) broker.Letter {
	m, meta, own := inward(d)
	meta.Queue = queue
	if reason := text(d.Headers["x-first-death-reason"]); reason != "" && (!own || meta.Reason == "") {
		meta.Reason = protocol.ReasonBroker
		meta.Error = fmt.Sprintf("the broker gave it up (%s) in %s", reason, text(d.Headers["x-first-death-queue"]))
	}
	return broker.Letter{Message: m, Meta: meta}
}

// actOnce is how many letters are on their way at once.
const actOnce = 256

// Act redrives or discards dead letters. Each is published to its queue again,
// confirmed, and only then settled here.
func (b *Broker) Act(ctx context.Context, queue string, a broker.Action) (int64, error) {
	n, err := b.namesOf(queue)
	if err != nil {
		return 0, err
	}
	var sending *redrive
	return b.read(ctx, queue, maxLetters, func(ch *amqp.Channel, d *amqp.Delivery) (int64, error) {
		l := letterOf(d, queue)
		if a.ID != (protocol.MessageID{}) && l.Message.ID != a.ID {
			return 0, nil
		}
		if !a.Redrive {
			if err := d.Ack(false); err != nil {
				return 0, b.failed("a dead letter could not be discarded", err)
			}
			return 1, nil
		}
		if sending == nil {
			if sending, err = b.newRedrive(ch, n); err != nil {
				return 0, err
			}
		}
		return sending.add(ctx, d, &l, a.By)
	}, func() (int64, error) { return sending.finish(ctx) })
}

// maxLetters is more than a queue has: what is bounded is what was there when
// the request came.
const maxLetters = 1 << 40

// redrive publishes letters anew.
type redrive struct {
	b       *Broker
	n       names
	ch      *amqp.Channel
	returns chan amqp.Return
	sent    []sent
}

type sent struct {
	d       *amqp.Delivery
	confirm *amqp.DeferredConfirmation
}

func (b *Broker) newRedrive(ch *amqp.Channel, n names) (*redrive, error) {
	if err := ch.Confirm(false); err != nil {
		return nil, b.failed("a channel could not confirm", err)
	}
	return &redrive{b: b, n: n, ch: ch, returns: ch.NotifyReturn(make(chan amqp.Return, 2*actOnce))}, nil
}

// add publishes one letter, and says how many are settled meanwhile.
func (r *redrive) add(ctx context.Context, d *amqp.Delivery, l *broker.Letter, by string) (int64, error) {
	meta := broker.Meta{Queue: l.Meta.Queue, Generation: l.Meta.Generation + 1, Attempt: 1, Spans: l.Meta.Spans}
	meta.Tell(ledger.Event{Kind: ledger.Redrove, At: time.Now().UnixNano(), Generation: meta.Generation, Attempt: 1, By: by})
	message, err := outward(l.Message, &meta)
	if err != nil {
		return 0, err
	}
	confirm, err := r.ch.PublishWithDeferredConfirm("", r.n.queue, true, false, message)
	if err != nil {
		return 0, r.b.failed("a dead letter could not be redriven", err)
	}
	r.sent = append(r.sent, sent{d, confirm})
	if len(r.sent) < actOnce {
		return 0, nil
	}
	return r.finish(ctx)
}

// finish settles the letters whose copies the broker has.
func (r *redrive) finish(ctx context.Context) (acked int64, err error) {
	if r == nil {
		return 0, nil
	}
	sent := r.sent
	r.sent = nil
	for _, s := range sent {
		confirmed, err := s.confirm.WaitContext(ctx)
		if err != nil || !confirmed || len(r.returns) > 0 {
			return acked, protocol.Errorf(protocol.CodeUnavailable, "dead letters of %s could not be redriven, and stay: the broker did not take them", r.n.queue)
		}
		if err := s.d.Ack(false); err != nil {
			return acked, r.b.failed("a dead letter was redriven and could not be taken away", err)
		}
		acked++
	}
	return acked, nil
}
