//go:build !no_artemis

package artemis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

var _ broker.Shelves = (*Broker)(nil)

// mostWaiting is how many messages of a queue may wait for them to be looked at: the
// broker tells all of them in one answer, and has no other.
const mostWaiting = 10_000

// managed are a message's properties that are no headers of it: management adds them.
var managed = map[string]bool{
	"messageID": true, "userID": true, "address": true, "durable": true, "expiration": true, "timestamp": true, "priority": true,
	"type": true, "largeMessage": true, "persistentSize": true, "protocol": true,
}

// stored is a message that was not delivered, as management tells it: without its
// body, and with values cut that are longer than the address settings allow.
type stored struct {
	number string // the broker's
	letter broker.Letter
}

// storedIn reads what management tells of a queue's messages that are the mesh's
// own: of a stranger's it tells too little to know them again.
func storedIn(queue, address, text string) ([]stored, error) {
	var told []map[string]any
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber() // the broker's are longer than a float is exact
	if err := d.Decode(&told); err != nil {
		return nil, fmt.Errorf("it tells messages that are no JSON: %w", err)
	}
	all := make([]stored, 0, len(told))
	for _, properties := range told {
		f := frame.New(frame.MESSAGE)
		for name, value := range properties {
			if !managed[name] {
				f.Header.Add(name, fmt.Sprint(value))
			}
		}
		own := decode(f)
		if !own.Own {
			continue
		}
		size, _ := strconv.Atoi(f.Header.Get(frame.ContentLength))
		own.Meta.Queue = queue
		all = append(all, stored{
			number: fmt.Sprint(properties["messageID"]),
			letter: broker.Letter{Message: own.Message, Meta: own.Meta, Size: size, Place: address},
		})
	}
	slices.SortStableFunc(all, func(a, b stored) int { return cmp.Compare(a.letter.Meta.Due, b.letter.Meta.Due) })
	return all, nil
}

// waiting are a queue's messages that the broker has scheduled, or the one with an
// id. A list is empty if they are too many.
func (b *Broker) waiting(ctx context.Context, s *spot, queue string, id protocol.MessageID) ([]stored, error) {
	answers, err := b.ask(ctx, settled(s.address), request{resource: onQueue(s.address), attribute: scheduledCount})
	if err != nil {
		return nil, err
	}
	n, err := answers[1].number()
	if err == nil && n > mostWaiting {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "%d messages wait in %s on the broker %s, which tells all of them at once or none: it is asked for %d at most; let them come, or look with the broker's own console", n, s.address, b.Shown, mostWaiting)
	}
	if err != nil || n == 0 {
		return nil, b.Failed("what waits in "+s.address+" could not be counted", err)
	}
	return b.told(ctx, s, queue, id, request{resource: onQueue(s.address), operation: "listScheduledMessagesAsJSON"})
}

// told are the messages in an answer, or the one with an id.
func (b *Broker) told(ctx context.Context, s *spot, queue string, id protocol.MessageID, r request) (all []stored, err error) {
	answers, err := b.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	text, err := answers[0].text()
	if notThere(err) {
		return nil, nil
	}
	if err == nil {
		all, err = storedIn(queue, s.address, text)
	}
	if id != noID {
		all = slices.DeleteFunc(all, func(m stored) bool { return m.letter.Message.ID != id })
	}
	return all, b.Failed("the messages in "+s.address+" could not be looked at", err)
}

func lettersOf(all []stored) []broker.Letter {
	letters := make([]broker.Letter, len(all))
	for i := range all {
		letters[i] = all[i].letter
	}
	return letters
}

// Waiting reads what the broker has scheduled. Of a queue in which too many wait
// none is listed.
func (b *Broker) Waiting(ctx context.Context, queue string, _ []int64, n int, id protocol.MessageID) ([]broker.Letter, error) {
	s, err := b.spotOf(queue)
	if err != nil {
		return nil, err
	}
	all, err := b.waiting(ctx, s, queue, id)
	if protocol.CodeOf(err) == protocol.CodeLimitExceeded {
		err = nil
	}
	return lettersOf(all[:min(n, len(all))]), err
}

// Ready looks for a message in a queue that nobody consumes.
func (b *Broker) Ready(ctx context.Context, queue string, id protocol.MessageID) ([]broker.Letter, error) {
	s, err := b.spotOf(queue)
	if err != nil {
		return nil, err
	}
	all, err := b.told(ctx, s, queue, id, request{resource: onQueue(s.address), operation: "listMessagesAsJSON", arguments: []any{withID(id)}})
	return lettersOf(all), err
}

// ActWaiting has the broker deliver messages at once, or remove them.
func (b *Broker) ActWaiting(ctx context.Context, queue string, _ []int64, a broker.Action) (int64, error) {
	s, err := b.spotOf(queue)
	if err != nil {
		return 0, err
	}
	all, err := b.waiting(ctx, s, queue, a.ID)
	acted := int64(0)
	for some := range slices.Chunk(all, remote.ActOnce) {
		var n int64
		if a.Redrive {
			n, err = b.release(ctx, s, some, a.Hurry)
		} else {
			n, err = b.remove(ctx, s, some)
		}
		acted += n
		if err != nil {
			break
		}
	}
	return acted, err
}

const deliverNow = "deliverScheduledMessage"

// release has messages delivered before their time.
func (b *Broker) release(ctx context.Context, s *spot, all []stored, hurry func(context.Context, []broker.Letter) error) (int64, error) {
	if err := hurry(ctx, lettersOf(all)); err != nil {
		return 0, err
	}
	requests := make([]request, len(all))
	for i := range all {
		requests[i] = request{resource: onQueue(s.address), operation: deliverNow, arguments: []any{json.Number(all[i].number)}}
	}
	answers, err := b.ask(ctx, requests...)
	n := int64(0)
	for _, a := range answers {
		if err = errors.Join(err, a.err); a.err == nil {
			n++
		}
	}
	if isRefused(err) && strings.Contains(err.Error(), deliverNow) {
		return n, protocol.Errorf(protocol.CodeUnsupported, "the broker %s does not let go of what waits before its time (%v): a later version of Artemis does", b.Shown, err)
	}
	return n, b.Failed("what waits in "+s.address+" could not be let go", err)
}

// remove removes messages, and says of how many that is true.
func (b *Broker) remove(ctx context.Context, s *spot, all []stored) (n int64, err error) {
	requests := make([]request, len(all))
	for i := range all {
		requests[i] = request{resource: onQueue(s.address), operation: "removeMessage", arguments: []any{json.Number(all[i].number)}}
	}
	answers, err := b.ask(ctx, requests...)
	for _, a := range answers {
		if err = errors.Join(err, a.err); string(a.value) == "true" {
			n++
		}
	}
	return n, b.Failed("what waits in "+s.address+" could not be discarded", err)
}
