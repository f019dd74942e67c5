//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Arguments of queues.
const (
	argumentType     = "x-queue-type"
	argumentPriority = "x-max-priority"
	argumentTTL      = "x-message-ttl"
	argumentExpires  = "x-expires"
	argumentOverflow = "x-overflow"
	argumentLimit    = "x-delivery-limit"
	argumentDLX      = "x-dead-letter-exchange"
	argumentDLKey    = "x-dead-letter-routing-key"
	// argumentAge is one that queues cannot be made with, and which means nothing to
	// those that are there; only streams have it.
	argumentAge = "x-max-age"

	propertyDurable, propertyAutoDelete, propertyExclusive = "durable", "auto_delete", "exclusive"

	typeQuorum, typeClassic, typeStream = "quorum", "classic", "stream"
)

// ConflictError says that a queue is on the broker with other arguments than it
// is declared with.
type ConflictError struct{ Queue, Argument, Text string }

func (e *ConflictError) Error() string {
	return "queue " + e.Queue + " is on the broker with another " + e.Argument + " and is used as it is: delete it there to have it as it is configured (" + e.Text + ")"
}

var inequivalent = regexp.MustCompile(`(?s)inequivalent arg '([^']*)'(?:.* but current is (?:none()|(?:the value )?'(.*?)'(?: of type '(\w+)')?)$)?`)

// difference is what a refused declaration is about.
type difference struct {
	argument string
	known    bool   // what follows is: the broker does not always have the room to say it
	none     bool   // the queue has no such argument
	value    string // what it has
	kind     string // of the value, where the declaration has none
}

// differs reads what a declaration was refused for; nil: something else.
func differs(err error) *difference {
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case ok && e.Code == amqp.ResourceLocked:
		return &difference{argument: propertyExclusive}
	case !ok || e.Code != amqp.PreconditionFailed:
		return nil
	}
	at := inequivalent.FindStringSubmatchIndex(e.Reason)
	if at == nil {
		return &difference{argument: "argument"}
	}
	group := func(i int) string {
		if at[2*i] < 0 {
			return ""
		}
		return e.Reason[at[2*i]:at[2*i+1]]
	}
	none := at[4] >= 0
	return &difference{argument: group(1), known: none || at[6] >= 0, none: none, value: group(3), kind: group(4)}
}

// made is what a queue on the broker was made with.
type made struct {
	durable, autoDelete, exclusive bool
	args                           amqp.Table
	unread                         string // an argument that the broker does not tell
}

// mostArguments is more than queues have.
const mostArguments = 24

// learn finds out what a queue was made with. AMQP has no question for it, but a
// declaration that differs is refused with the first argument that does: with that
// put right the next is asked for, until nothing differs.
func (b *Broker) learn(ctx context.Context, name string, args amqp.Table) (*made, error) {
	m := &made{durable: true, args: maps.Clone(args)}
	for range mostArguments {
		var declared error
		err := b.ask(ctx, func(ch *amqp.Channel) error {
			_, declared = ch.QueueDeclare(name, m.durable, m.autoDelete, false, false, m.question())
			return declared
		})
		d := differs(declared)
		switch {
		case declared == nil && err == nil:
			return m, nil
		case d == nil || d.argument == "argument": // it is not there any more
			return nil, b.Failed("the queue "+name+" could not be looked at", err)
		case !m.correct(d):
			return m, nil
		}
	}
	m.unread = "arguments"
	return m, nil
}

// question are the arguments of a declaration that makes no queue, should there be
// none.
func (m *made) question() amqp.Table {
	args := maps.Clone(m.args)
	args[argumentAge] = "1h"
	return args
}

// correct takes over what the broker says; false: there is nothing more to be asked.
func (m *made) correct(d *difference) bool {
	was, asked := m.args[d.argument]
	switch {
	case d.argument == propertyExclusive:
		m.exclusive = true
		return false
	case d.argument == argumentAge, d.argument == argumentType && d.value == typeStream:
		m.args[argumentType] = typeStream
		return false
	case d.argument == propertyDurable:
		m.durable = d.value == "true"
	case d.argument == propertyAutoDelete:
		m.autoDelete = d.value == "true"
	case d.known && d.none, !d.known && asked:
		delete(m.args, d.argument)
	case !d.known, d.kind == "" && was == valueOf(d.value, was):
		m.args[d.argument], m.unread = nil, d.argument
		return false
	case d.kind == "":
		m.args[d.argument] = valueOf(d.value, was)
	default:
		m.args[d.argument] = valueOfKind(d.value, d.kind)
	}
	return true
}

// valueOf is a value of the type that another has.
func valueOf(text string, like any) any {
	switch like.(type) {
	case string:
		return text
	case bool:
		return text == "true"
	}
	return valueOfKind(text, "long")
}

// valueOfKind is a value of one of the broker's types.
func valueOfKind(text, kind string) any {
	if kind == "bool" {
		return text == "true"
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && kind != "longstr" {
		return n
	}
	return text
}

// loses is with which of its arguments a queue may lose what it has confirmed. The
// broker's limits do no harm where what they take out becomes a dead letter.
func (b *Broker) loses(n names, m *made) (argument string, value any) {
	switch {
	case m.exclusive:
		return propertyExclusive, true
	case !m.durable:
		return propertyDurable, false
	case m.autoDelete:
		return propertyAutoDelete, true
	case m.args[argumentType] == typeStream:
		return argumentType, typeStream
	}
	for _, name := range []string{argumentTTL, argumentExpires} {
		if value, has := m.args[name]; has {
			return name, value
		}
	}
	overflow := text(m.args[argumentOverflow])
	for _, name := range []string{"x-max-length", "x-max-length-bytes"} {
		if value, has := m.args[name]; has && overflow != "reject-publish" && overflow != "reject-publish-dlx" {
			return name, value
		}
	}
	if limit := b.limitOf(m); limit >= 0 && !b.keepsLetters(n, m) {
		return argumentLimit, limit
	}
	return m.unread, nil
}

// defaultLimit is how often quorum queues deliver a message since RabbitMQ 4, if
// nothing else is said.
const defaultLimit = 20

// limitOf is how often a message may be delivered; below 0: as often as it has to be.
func (b *Broker) limitOf(m *made) int64 {
	limit, has := integer(m.args[argumentLimit])
	switch {
	case m.args[argumentType] != typeQuorum:
		return -1
	case has:
		return limit
	case b.unbounded:
		return defaultLimit
	}
	return -1
}

// keepsLetters says whether what the broker takes out of a queue is among its dead
// letters.
func (b *Broker) keepsLetters(n names, m *made) bool {
	return m.args[argumentDLX] == b.deadExchange() && m.args[argumentDLKey] == n.dead
}

// accept looks at a queue that is on the broker with other arguments, as c says.
// CONFLICT: it may lose what it has confirmed.
func (b *Broker) accept(ctx context.Context, n names, args amqp.Table, c *ConflictError) error {
	m, err := b.learn(ctx, c.Queue, args)
	if err != nil {
		return err
	}
	argument, value := b.loses(n, m)
	if argument == "" {
		return nil
	}
	is := "cannot be read"
	if value != nil {
		is = fmt.Sprintf("is %v", value)
	}
	refusal := protocol.Errorf(protocol.CodeConflict, "the queue %s on the broker %s was not made by the mesh, and may lose what it has confirmed: its %s %s. Delete it there once it is empty, the mesh makes it anew; until then nothing is published to it or taken from it",
		c.Queue, b.Shown, argument, is)
	c.Argument, c.Text = argument, refusal.Message
	return refusal
}
