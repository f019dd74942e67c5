//go:build !no_artemis

package artemis

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// withID selects the message of an id. The names of our headers have hyphens.
func withID(id protocol.MessageID) string {
	return "hyphenated_props:" + protocol.HeaderMessageID + "='" + id.String() + "'"
}

var noID protocol.MessageID

// Browse reads the oldest dead letters: they are taken without being settled and
// given back in their order.
func (b *Broker) Browse(ctx context.Context, queue string, most int, id protocol.MessageID) (letters []broker.Letter, err error) {
	err = b.letters(ctx, queue, id, func(r *reading) (err error) {
		letters, err = remote.Browse(ctx, r, queue, r.s.deadletter, most, id)
		return err
	})
	return letters, err
}

// Act redrives or discards dead letters.
func (b *Broker) Act(ctx context.Context, queue string, a broker.Action) (acted int64, err error) {
	if !a.Redrive {
		if n, err := b.discard(ctx, queue, a.ID); n > 0 || err != nil || a.ID == noID {
			return n, err
		}
	}
	err = b.letters(ctx, queue, a.ID, func(r *reading) (err error) {
		acted, err = remote.Act(ctx, r, a)
		return err
	})
	return acted, err
}

// discard has the broker remove the letter of an id, or all.
func (b *Broker) discard(ctx context.Context, queue string, id protocol.MessageID) (int64, error) {
	s, err := b.spotOf(queue)
	if err != nil {
		return 0, err
	}
	selector := ""
	if id != noID {
		selector = withID(id)
	}
	defer b.shelves.Take(s.deadletter)()
	there, err := b.countLetters(ctx, s, selector)
	if err != nil || there == 0 {
		return 0, err
	}
	answers, err := b.ask(ctx, request{resource: onQueue(s.deadletter), operation: "removeMessages", arguments: []any{selector}})
	if err != nil {
		return 0, err
	}
	n, err := answers[0].number()
	return n, b.Failed("the dead letters in "+s.deadletter+" could not be discarded", err)
}

// countLetters is how many there are, 0 where there is no place for them.
func (b *Broker) countLetters(ctx context.Context, s *spot, selector string) (int64, error) {
	answers, err := b.ask(ctx,
		settled(s.deadletter),
		request{resource: onQueue(s.deadletter), attribute: messageCount},
		request{resource: onQueue(s.deadletter), operation: "countMessages", arguments: []any{selector}},
	)
	if err != nil {
		return 0, err
	}
	n, err := answers[1].number()
	if err == nil && n > 0 {
		n, err = answers[2].number()
	}
	return n, b.Failed("the dead letters in "+s.deadletter+" could not be counted", err)
}

// letters has f read dead letters, on a connection of their own, and gives back
// those that it does not settle. With an id that of a message of the mesh's is
// the only one taken.
func (b *Broker) letters(ctx context.Context, queue string, id protocol.MessageID, f func(r *reading) error) error {
	s, err := b.spotOf(queue)
	if err != nil {
		return err
	}
	defer b.shelves.Take(s.deadletter)()
	selector := ""
	if id != noID {
		selector = withID(id)
	}
	there, err := b.countLetters(ctx, s, selector)
	if err == nil && there == 0 && id != noID { // a stranger's has none to be selected by
		selector = ""
		there, err = b.countLetters(ctx, s, selector)
	}
	if err != nil || there == 0 {
		return err
	}
	conn, err := b.dial(ctx, "letters")
	if err != nil {
		return b.Failed("the dead letters in "+s.deadletter+" could not be read", err)
	}
	defer conn.close()
	r := &reading{b: b, s: s, conn: conn, selector: selector, left: there, arrived: make(chan letter, maxTaken), sizes: make(map[string]int64)}
	r.subscribe(leastBytes)
	err = f(r)
	return errors.Join(err, r.end(ctx))
}

// maxTaken is more than a window has messages in it.
const maxTaken = 1 << 16

// reading takes the letters that were there when it began.
type reading struct {
	b        *Broker
	s        *spot
	conn     *connection
	selector string
	arrived  chan letter
	subs     []string
	left     int64 // that were not taken yet
	credit   int64
	size     int64            // of what is unsettled
	sizes    map[string]int64 // of each, by its tag
}

// letter is a dead letter with what it takes of a window.
type letter struct {
	remote.Delivery
	size int64
}

func (r *reading) subscribe(bytes int64) {
	id := r.conn.number()
	r.subs = append(r.subs, id)
	r.credit += bytes
	r.conn.take(id, func(f *frame.Frame) {
		select {
		case r.arrived <- letter{decode(f), sizeOf(f)}:
		case <-r.conn.done:
		}
	})
	f := frame.New(frame.SUBSCRIBE, frame.Id, id, frame.Destination, r.s.dead, "subscription-type", anycast,
		frame.Ack, "client-individual", "consumer-window-size", strconv.FormatInt(bytes, 10), headerTimestamp, time.Now().UTC().Format(remote.TimeLayout))
	if r.selector != "" {
		f.Header.Add("selector", r.selector)
	}
	r.conn.send(f, nil)
}

// nextWait is longer than a letter takes that is there.
const nextWait = 3 * time.Second

// Next implements remote.Reading.
func (r *reading) Next(ctx context.Context) (*remote.Delivery, error) {
	if r.left == 0 {
		return nil, nil //nolint:nilnil // the end
	}
	if r.size*10 >= r.credit*9 {
		r.subscribe(r.credit)
	}
	t := time.NewTimer(nextWait)
	defer t.Stop()
	select {
	case d := <-r.arrived:
		r.left--
		r.size += d.size
		r.sizes[d.Tag] = d.size
		return &d.Delivery, nil
	case <-t.C: // somebody else has taken it
		return nil, nil //nolint:nilnil // the end
	case <-r.conn.done:
		return nil, r.b.Failed("the dead letters in "+r.s.deadletter+" could not be read", r.conn.ended())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// end gives back what was taken, and waits until the broker has it.
func (r *reading) end(ctx context.Context) error {
	var errs []error
	for _, id := range r.subs {
		r.conn.take(id, nil)
	}
	for len(r.arrived) > 0 { // so that nobody waits to deliver
		<-r.arrived
	}
	for _, id := range slices.Backward(r.subs) { // the oldest are first again
		errs = append(errs, r.conn.do(ctx, frame.New(frame.UNSUBSCRIBE, frame.Id, id)))
	}
	return r.b.Failed("dead letters in "+r.s.deadletter+" could not be given back", errors.Join(errs...))
}

// Redrive implements remote.Reading.
func (r *reading) Redrive(ctx context.Context, all []*remote.Writing) error {
	if err := r.s.restore(ctx); err != nil {
		return err
	}
	said := make(chan error, len(all))
	for _, w := range all {
		w.Spot = r.s
		f, err := encode(r.b, w)
		if err != nil {
			return err
		}
		r.conn.send(f, func(err error) {
			r.b.counting.confirm(r.s.address)
			said <- err
		})
	}
	return r.b.Failed("dead letters of "+r.s.address+" could not be redriven, and stay", remote.Confirmed(ctx, len(all), said))
}

// Settle implements remote.Reading. What the broker does not hear of is there again.
func (r *reading) Settle(all []*remote.Delivery) error {
	for _, d := range all {
		r.size -= r.sizes[d.Tag]
		delete(r.sizes, d.Tag)
		r.conn.send(frame.New(frame.ACK, frame.Id, d.Tag), nil)
	}
	return nil
}

// restore makes a queue that is not there any more.
func (s *spot) restore(ctx context.Context) error {
	answers, err := s.b.ask(ctx, request{resource: onQueue(s.address), attribute: itsAddress})
	if err != nil {
		return err
	}
	if notThere(answers[0].err) {
		return s.Establish(ctx, remote.Made{}, "")
	}
	var at string
	return s.b.Failed("the queue "+s.address+" could not be looked at", errors.Join(answers[0].err, json.Unmarshal(answers[0].value, &at)))
}
