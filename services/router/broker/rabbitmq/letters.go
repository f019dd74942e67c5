//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Depth says how much the broker has of a queue. What is being looked at by
// Browse or Act counts too.
func (b *Broker) Depth(ctx context.Context, queue string, delays []int64) (broker.Depth, error) {
	n, err := b.namesOf(queue)
	if err != nil {
		return broker.Depth{}, err
	}
	var d broker.Depth
	if d.Ready, d.Taken, err = b.surely(ctx, n.queue); err != nil {
		return d, err
	}
	for _, ms := range delays {
		name, err := b.holding(n, ms)
		if err != nil {
			return d, err
		}
		waiting, err := b.depthOfShelf(ctx, name)
		if err != nil {
			return d, err
		}
		d.Waiting += waiting
	}
	d.Dead, err = b.depthOfShelf(ctx, n.dead)
	return d, err
}

// depthOfShelf is what surely is there, once nobody here looks at it.
func (b *Broker) depthOfShelf(ctx context.Context, queue string) (int64, error) {
	defer b.shelves.Take(queue)()
	n, _, err := b.surely(ctx, queue)
	return n, err
}

// Browse reads the oldest dead letters. They are taken without being settled on
// a channel that is closed then, so the broker has them back in their order.
func (b *Broker) Browse(ctx context.Context, queue string, most int, id protocol.MessageID) (letters []broker.Letter, err error) {
	n, err := b.namesOf(queue)
	if err != nil {
		return nil, err
	}
	return b.browse(ctx, shelf{n.dead, true}, queue, most, id)
}

// shelf is one of the broker's queues as somebody looks at it. From the dead
// letters nothing goes away by itself.
type shelf struct {
	name string
	dead bool
}

// browse reads the oldest messages on a shelf, or of these the one with an id.
func (b *Broker) browse(ctx context.Context, at shelf, queue string, most int, id protocol.MessageID) (letters []broker.Letter, err error) {
	one := id != (protocol.MessageID{})
	if one {
		most = maxLetters
	}
	_, err = b.read(ctx, at, int64(most), func(_ *amqp.Channel, d *amqp.Delivery) (int64, error) {
		l := at.letter(d, queue)
		if !one || l.Message.ID == id {
			if letters = append(letters, l); one {
				return 0, errEnough
			}
		}
		return 0, nil
	}, func() (int64, error) { return 0, nil })
	return letters, err
}

// read takes the messages on a shelf, at most so many and none that came after it
// began, on a channel of their own. f has each and end comes last; they say how
// many they have settled. The others go back. Of a dead letter that was written
// twice f has the first, and the other is taken away.
func (b *Broker) read(ctx context.Context, at shelf, most int64, f func(ch *amqp.Channel, d *amqp.Delivery) (int64, error), end func() (int64, error)) (settled int64, err error) {
	defer b.shelves.Take(at.name)()
	there, _, err := b.surely(ctx, at.name)
	if err != nil || there == 0 {
		return 0, err
	}
	ch, err := b.out.channel(ctx)
	if err != nil {
		return 0, b.Failed("a channel could not be opened", err)
	}
	most = min(most, there)
	// All are taken: what goes back goes behind what went back before, so that some
	// of them alone would lose their place.
	deliveries, err := b.takeLetters(ch, at.name, there)
	seen := seen{}
	for i := int64(0); i < most && err == nil; i++ {
		var more int64
		d, delivered := next(ctx, deliveries)
		if !delivered {
			break
		}
		if at.dead && seen.again(&d) {
			err = b.Failed("a dead letter could not be taken away", d.Ack(false))
			there--
			continue
		}
		if more, err = f(ch, &d); errors.Is(err, errEnough) {
			err = nil
			break
		}
		settled += more
	}
	if err != nil {
		return settled, errors.Join(err, b.putBack(ctx, ch, at, there-settled))
	}
	more, err := end()
	settled += more
	return settled, errors.Join(err, b.putBack(ctx, ch, at, there-settled))
}

// seen are the dead letters that were read.
type seen map[seenKey]struct{}

type seenKey struct {
	id         string
	generation uint32
}

// again says whether a letter of the mesh's was read before, and notes it.
func (s seen) again(d *amqp.Delivery) bool {
	if _, own := d.Headers[remote.HeaderPublished]; !own {
		return false
	}
	k := seenKey{d.MessageId, number(d.Headers[protocol.HeaderGeneration])}
	_, again := s[k]
	s[k] = struct{}{}
	return again
}

// errEnough ends a read.
var errEnough = errors.New("no more is wanted")

// manyLetters is fewer than a channel can be asked for at once; more come as
// they can.
const manyLetters = 60_000

// takeLetters has so many letters delivered.
func (b *Broker) takeLetters(ch *amqp.Channel, queue string, n int64) (<-chan amqp.Delivery, error) {
	if n > manyLetters {
		n = 0
	}
	if err := ch.Qos(int(n), 0, false); err != nil {
		return nil, b.Failed("a channel could not be used", err)
	}
	deliveries, err := ch.Consume(queue, "waybill-letters", false, false, false, false, nil)
	return deliveries, b.Failed("the dead letters in "+queue+" could not be read", err)
}

// next is the next delivery, unless none comes.
func next(ctx context.Context, deliveries <-chan amqp.Delivery) (amqp.Delivery, bool) {
	t := time.NewTimer(nextWait)
	defer t.Stop()
	select {
	case d, open := <-deliveries:
		return d, open
	case <-t.C: // somebody else has taken it
	case <-ctx.Done():
	}
	return amqp.Delivery{}, false
}

// nextWait is longer than a letter takes that is there, a large one on a slow machine too.
const nextWait = 10 * time.Second

// putBack gives back what was taken and not settled, and waits until the broker
// counts it again: until then nobody else would find it.
func (b *Broker) putBack(ctx context.Context, ch *amqp.Channel, at shelf, left int64) error {
	if !ch.IsClosed() {
		if err := ch.Close(); err != nil {
			return b.Failed("messages could not be given back", err)
		}
	}
	looks := backLooks
	if !at.dead {
		looks = passingLooks // what is due there goes by itself
	}
	for range looks {
		there, err := b.depthOf(ctx, at.name)
		if err != nil || there >= left || !mesh.Pause(ctx, backLook) {
			return err
		}
	}
	return nil // somebody else takes them
}

const (
	backLook  = 5 * time.Millisecond
	backLooks = 400

	passingLooks = 40
)

// letter reads a message. A dead letter that the broker itself has given up says
// so in the broker's words.
func (at shelf) letter(d *amqp.Delivery, queue string) broker.Letter {
	m, meta, own := inward(d)
	meta.Queue = queue
	if reason := text(d.Headers["x-first-death-reason"]); at.dead && reason != "" && (!own || meta.Reason == "") {
		meta.Reason = protocol.ReasonBroker
		meta.Error = fmt.Sprintf("the broker gave it up (%s) in %s", reason, text(d.Headers["x-first-death-queue"]))
	}
	return broker.Letter{Message: m, Meta: meta, Place: at.name}
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
	return b.act(ctx, shelf{n.dead, true}, n, a, redriven)
}

// act acts on the messages on a shelf of a queue.
func (b *Broker) act(ctx context.Context, at shelf, n names, a broker.Action, anew func(*amqp.Delivery, *broker.Letter, string) (amqp.Publishing, error)) (int64, error) {
	var acting *acting
	return b.read(ctx, at, maxLetters, func(ch *amqp.Channel, d *amqp.Delivery) (_ int64, err error) {
		l := at.letter(d, n.ledger)
		one := a.ID != (protocol.MessageID{})
		if one && l.Message.ID != a.ID {
			return 0, nil
		}
		if acting == nil {
			if acting, err = b.newActing(ctx, ch, n, one); err != nil {
				return 0, err
			}
		}
		if !a.Redrive {
			return acting.add(ctx, taken{d: d, ident: identOf(d, l.Message, &l.Meta)})
		}
		message, err := anew(d, &l, a.By)
		if err != nil {
			return 0, err
		}
		b.rank(&message)
		return acting.add(ctx, taken{d: d, anew: &message})
	}, func() (int64, error) { return acting.finish(ctx) })
}

// maxLetters is more than a queue has: what is bounded is what was there when
// the request came.
const maxLetters = 1 << 40

// acting is what is done with letters, some at a time: each time is one
// acknowledgement.
type acting struct {
	b       *Broker
	n       names
	ch      *amqp.Channel
	single  bool // letters between them stay
	returns chan amqp.Return
	taken   []taken
}

// taken is a letter with what it is to be anew, and what says that it has been
// published so; or it is discarded, and does not come back.
type taken struct {
	d       *amqp.Delivery
	anew    *amqp.Publishing
	confirm *amqp.DeferredConfirmation
	ident   remote.Ident
}

func (b *Broker) newActing(ctx context.Context, ch *amqp.Channel, n names, single bool) (*acting, error) {
	if err := ch.Confirm(false); err != nil {
		return nil, b.Failed("a channel could not confirm", err)
	}
	if err := b.restore(ctx, n); err != nil {
		return nil, err
	}
	return &acting{b: b, n: n, ch: ch, single: single, returns: ch.NotifyReturn(make(chan amqp.Return, 2*actOnce))}, nil
}

// redriven is a dead letter as it begins anew.
func redriven(_ *amqp.Delivery, l *broker.Letter, by string) (amqp.Publishing, error) {
	meta := broker.Meta{Queue: l.Meta.Queue, Generation: l.Meta.Generation + 1, Attempt: 1, Spans: l.Meta.Spans}
	meta.Tell(ledger.Event{Kind: ledger.Redrove, At: time.Now().UnixNano(), Generation: meta.Generation, Attempt: 1, By: by})
	return outward(l.Message, &meta)
}

// add takes one letter, and says how many are settled meanwhile.
func (r *acting) add(ctx context.Context, t taken) (_ int64, err error) {
	if t.anew != nil {
		if t.confirm, err = r.ch.PublishWithDeferredConfirm("", r.n.queue, true, false, *t.anew); err != nil {
			return 0, r.b.Failed("a message could not be published anew", err)
		}
	}
	r.taken = append(r.taken, t)
	if len(r.taken) < actOnce {
		return 0, nil
	}
	return r.finish(ctx)
}

// finish settles the letters taken so far, of which copies that are wanted are
// on the broker.
func (r *acting) finish(ctx context.Context) (int64, error) {
	if r == nil || len(r.taken) == 0 {
		return 0, nil
	}
	all := r.taken
	r.taken = nil
	for _, t := range all {
		if t.confirm == nil {
			continue
		}
		confirmed, err := t.confirm.WaitContext(ctx)
		if err != nil || !confirmed || len(r.returns) > 0 {
			return 0, protocol.Errorf(protocol.CodeUnavailable, "dead letters of %s could not be redriven, and stay: the broker did not take them", r.n.queue)
		}
	}
	n, err := r.settle(all)
	for _, t := range all[:n] {
		if t.anew == nil {
			r.b.away.Back(t.ident)
		}
	}
	return int64(n), err
}

// settle says how many it has settled.
func (r *acting) settle(all []taken) (int, error) {
	if !r.single {
		return len(all), r.b.Failed("dead letters could not be taken away", all[len(all)-1].d.Ack(true))
	}
	for i, t := range all {
		if err := t.d.Ack(false); err != nil {
			return i, r.b.Failed("a dead letter could not be taken away", err)
		}
	}
	return len(all), nil
}
