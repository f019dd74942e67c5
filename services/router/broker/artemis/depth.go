//go:build !no_artemis

package artemis

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Depth says how much the broker has of a queue. What is being looked at by
// Browse or Act counts too.
func (b *Broker) Depth(ctx context.Context, queue string, _ []int64) (broker.Depth, error) {
	s, err := b.spotOf(queue)
	if err != nil {
		return broker.Depth{}, err
	}
	given, _, _ := b.hand(s.address)
	b.leaving.wait(ctx, s.address)
	n, err := b.takenIn(ctx, s)
	free := int64(0)
	if err == nil {
		n, free, err = b.arrived(ctx, s, n, given)
	}
	return broker.Depth{Ready: max(0, n[0]-n[1]-n[2]) + free, Waiting: n[1], Dead: n[3], Taken: n[2]}, b.Failed("the queue "+s.address+" could not be looked at", err)
}

// hand is session.hand of the one that consumes a queue, if there is one: the broker
// alone cannot say of what it has delivered whether it has arrived.
func (b *Broker) hand(address string) (given, kept int64, consumed bool) {
	x := b.sessions.Of(address)
	if x == nil {
		return 0, 0, false
	}
	given, kept = x.hand()
	return given, kept, true
}

// takenIn are the counts of a queue once it has taken in what was confirmed for it.
func (b *Broker) takenIn(ctx context.Context, s *spot) ([4]int64, error) {
	n, err := b.counts(ctx, s)
	if err != nil {
		return n, err
	}
	var first []request
	var counted []func()
	for queue, there := range map[string]int64{s.address: n[0], s.deadletter: n[3]} {
		if is, done := b.counting.of(queue); is && there < few {
			first, counted = append(first, intake(queue)), append(counted, done)
		}
	}
	if len(first) == 0 {
		return n, nil
	}
	b.counting.handed(ctx)
	if n, err = b.counts(ctx, s, first...); err == nil {
		for _, done := range counted {
			done()
		}
	}
	return n, err
}

// What is on its way between the broker and a session, to it or acknowledged, is
// counted as delivered. It is there soon, unless it is somebody else's.
const (
	onItsWay  = 100 * time.Millisecond
	lookAgain = 5 * time.Millisecond
)

// arrived are the counts n once what is delivered is here, and how many messages
// that count as delivered are nobody's: kept here, or given to the lane since it had
// so many, and was asked.
func (b *Broker) arrived(ctx context.Context, s *spot, n [4]int64, before int64) (_ [4]int64, free int64, err error) {
	for until := time.Now().Add(onItsWay); err == nil; n, err = b.counts(ctx, s) {
		given, kept, consumed := b.hand(s.address)
		if !consumed || n[2] <= given+kept || time.Now().After(until) || !remote.Sleep(ctx, lookAgain) {
			return n, kept + max(0, given-before), nil
		}
	}
	return n, 0, err
}

// settled has what was confirmed for a queue be in it, if that is being done: the
// broker waits for it before it tells the age of the first. What is about to be done
// it does not wait for.
func settled(queue string) request {
	return request{resource: onQueue(queue), attribute: "firstMessageTimestamp"}
}

// counts are of a queue the messages, those of them that are scheduled and that are
// delivered, and the dead letters, after what is asked first.
func (b *Broker) counts(ctx context.Context, s *spot, first ...request) (n [4]int64, err error) {
	answers, err := b.ask(ctx, append(first,
		settled(s.address), settled(s.deadletter),
		request{resource: onQueue(s.address), attribute: messageCount},
		request{resource: onQueue(s.address), attribute: scheduledCount},
		request{resource: onQueue(s.address), attribute: "deliveringCount"},
		request{resource: onQueue(s.deadletter), attribute: messageCount},
	)...)
	if err != nil {
		return n, err
	}
	for i, a := range answers[len(first)+2:] {
		var fault error
		n[i], fault = a.number()
		err = errors.Join(err, fault)
	}
	return n, err
}

// intake has a queue take in what was confirmed: it does so, before it looks, when
// it is to remove messages, and of this kind there are none. It looks at all that
// it has, which is not asked of a queue that has more than a few: there it matters
// little, and settled has nearly all.
func intake(queue string) request {
	return request{resource: onQueue(queue), operation: "removeMessages", arguments: []any{"AMQDurable='NEITHER'"}}
}

const few = 1000
