//go:build !no_artemis

package artemis

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Kinds of destinations, and the header that says which is meant.
const (
	anycast         = "ANYCAST"
	multicast       = "MULTICAST"
	destinationType = "destination-type"
)

// spot is a queue on the broker: how STOMP calls it, and what the broker itself
// does.
type spot struct {
	b                   *Broker
	queue, dead         string // destinations
	address, deadletter string // of the same, on the broker
}

var _ remote.Spot = (*spot)(nil)

// spotOf is that of a queue with that ledger name.
func (b *Broker) spotOf(queue string) (*spot, error) {
	n, err := scope.Ledger{}.Parse(queue)
	if err != nil {
		return nil, err
	}
	s := &spot{b: b}
	if s.queue, err = (scope.STOMP{}).Format(n); err != nil {
		return nil, err
	}
	if s.dead, err = (scope.STOMP{}).Format(n.DeadLetters()); err != nil {
		return nil, err
	}
	if s.address, err = b.physical(s.queue); err != nil {
		return nil, err
	}
	s.deadletter, err = b.physical(s.dead)
	return s, err
}

// physical is what the broker calls a destination.
func (b *Broker) physical(destination string) (string, error) {
	for prefix, off := range map[string]string{scope.QueuePrefix: b.queuePrefix, scope.TopicPrefix: b.topicPrefix} {
		if strings.HasPrefix(destination, prefix) {
			return strings.TrimPrefix(destination, off), nil
		}
	}
	return "", protocol.Errorf(protocol.CodeInvalidName, "%s is neither a queue nor a topic of STOMP", destination)
}

// topicOf is a topic's destination, and its address on the broker.
func (b *Broker) topicOf(topic string) (destination, address string, err error) {
	if destination, err = (scope.STOMP{}).Format(scope.TopicName(topic)); err != nil {
		return "", "", err
	}
	address, err = b.physical(destination)
	return destination, address, err
}

// queueOf is a queue as it is created. What an address setting would have
// otherwise is said. The operation takes it as a text.
type queueOf map[string]any

// MarshalText makes that.
func (q queueOf) MarshalText() ([]byte, error) { return json.Marshal(map[string]any(q)) }

// lasting is a queue that stays, passing one that goes with its connection.
func lasting(name string, exclusive bool) queueOf {
	q := passing(name, anycast)
	q["durable"], q["auto-delete"], q["exclusive"] = true, false, exclusive
	return q
}

func passing(name, routing string) queueOf {
	return queueOf{
		"name": name, itsAddress: name, "routing-type": routing, "durable": false, "auto-delete": true, "max-consumers": -1, "ring-size": -1,
		"last-value": false, "non-destructive": false, "purge-on-no-consumers": false, "consumers-before-dispatch": 0, "group-buckets": -1,
	}
}

// Name implements remote.Spot.
func (s *spot) Name() string { return s.queue }

// Establish implements remote.Spot.
func (s *spot) Establish(ctx context.Context, made remote.Made, topic string) error {
	if err := s.create(ctx, s.address, made.FIFO); err != nil || topic == "" {
		return err
	}
	return s.bind(ctx, topic)
}

// EstablishDead implements remote.Spot.
func (s *spot) EstablishDead(ctx context.Context) error { return s.create(ctx, s.deadletter, false) }

// create makes a queue, unless it is there. One of its name with another address
// would never receive anything, and the broker says nothing of it.
func (s *spot) create(ctx context.Context, name string, exclusive bool) error {
	answers, err := s.b.ask(ctx,
		request{resource: onBroker, operation: "createQueue", arguments: []any{lasting(name, exclusive), true}},
		request{resource: onQueue(name), attribute: itsAddress},
		request{resource: onQueue(name), attribute: "exclusive"},
		settingsOf(name),
	)
	if err == nil {
		err = errors.Join(answers[0].err, answers[1].err)
	}
	if err != nil {
		return s.b.Failed("the queue "+name+" could not be made", err)
	}
	at, err := answers[1].text()
	if err != nil {
		return s.b.Failed("the queue "+name+" could not be looked at", err)
	}
	if at != name {
		return s.b.Faultf(protocol.CodeConflict, "has a queue %s that belongs to the address %s, so that what is sent to %s does not reach it: delete it there, or give it another name", name, at, name)
	}
	s.b.warnOf(name, answers[3])
	if exclusive && string(answers[2].value) != "true" {
		return s.makeExclusive(ctx, name)
	}
	return nil
}

// makeExclusive has a queue that was made before its order counted have one
// consumer at a time.
func (s *spot) makeExclusive(ctx context.Context, name string) error {
	changed, err := json.Marshal(map[string]any{"name": name, "exclusive": true})
	if err != nil {
		return err
	}
	answers, err := s.b.ask(ctx, request{resource: onBroker, operation: "updateQueue", arguments: []any{string(changed)}})
	if err == nil {
		err = answers[0].err
	}
	return s.b.Failed("the queue "+name+" could not be made to keep its order", err)
}

// diverts are named apart from queues, with which they share their names.
func (s *spot) divert() string { return "waybill:" + s.address }

// bind has the queue receive a topic.
func (s *spot) bind(ctx context.Context, topic string) error {
	_, address, err := s.b.topicOf(topic)
	if err != nil {
		return err
	}
	defer s.b.binding.Take(address)() // what one finds to be there another must not make anew
	divert, err := json.Marshal(map[string]any{
		"name": s.divert(), "routing-name": s.divert(), itsAddress: address, "forwarding-address": s.address, "exclusive": false, "routing-type": anycast,
	})
	if err != nil {
		return err
	}
	create := request{resource: onBroker, operation: "createDivert", arguments: []any{string(divert)}}
	answers, err := s.b.ask(ctx,
		request{resource: onBroker, operation: "createAddress", arguments: []any{address, multicast}},
		create,
		request{resource: onDivert(s.divert()), attribute: itsAddress},
		request{resource: onBroker, operation: "listBindingsForAddress", arguments: []any{address}},
	)
	if err == nil && !alreadyThere(answers[0].err) {
		err = answers[0].err
	}
	if err == nil {
		err = errors.Join(answers[1].err, answers[2].err, answers[3].err)
	}
	if err == nil && (answers[0].err == nil || !strings.Contains(string(answers[3].value), "DivertBinding")) {
		err = s.renew(ctx, create)
	}
	if err != nil {
		return s.b.Failed("the queue "+s.address+" could not be made to receive the topic "+topic, err)
	}
	if from, err := answers[2].text(); err != nil || from != address {
		return s.b.Faultf(protocol.CodeConflict, "has a divert %s that is not of the topic %s: delete it there", s.divert(), topic)
	}
	return nil
}

// renew makes the divert anew. Of an address that somebody has deleted the broker
// goes on to list the diverts, which lead nowhere.
func (s *spot) renew(ctx context.Context, create request) error {
	answers, err := s.b.ask(ctx, request{resource: onBroker, operation: "destroyDivert", arguments: []any{s.divert()}}, create)
	if err != nil {
		return err
	}
	return answers[1].err
}

// Unbind implements remote.Spot.
func (s *spot) Unbind(ctx context.Context, _ string) error {
	return s.tidy(ctx, request{resource: onBroker, operation: "destroyDivert", arguments: []any{s.divert()}})
}

// Remove implements remote.Spot.
func (s *spot) Remove(ctx context.Context) error {
	s.b.counting.forget(s.address)
	s.b.counting.forget(s.deadletter)
	return s.tidy(ctx,
		request{resource: onBroker, operation: "destroyDivert", arguments: []any{s.divert()}},
		request{resource: onBroker, operation: "destroyQueue", arguments: []any{s.address, true, true}},
		request{resource: onBroker, operation: "destroyQueue", arguments: []any{s.deadletter, true, true}},
	)
}

// tidy removes what may not be there.
func (s *spot) tidy(ctx context.Context, all ...request) error {
	answers, err := s.b.ask(ctx, all...)
	for _, a := range answers {
		if !notThere(a.err) {
			err = errors.Join(err, a.err)
		}
	}
	return s.b.Failed("the queue "+s.address+" could not be removed", err)
}
