package client

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// Destination is where a message goes.
type Destination struct {
	subject string
	job     protocol.FunctionSpec // that it is for
	err     error
}

// Queue is a route of an execution. A name the mesh does not allow is refused
// with INVALID_NAME when something is published to it.
func Queue(execution, route string) Destination {
	route, err := scope.Route(execution, route)
	if err != nil {
		return Destination{err: err}
	}
	return Destination{subject: protocol.PublishQueueSubject(execution, route)}
}

// Topic is a topic, which everybody who listens to or observes it receives. A
// name the mesh does not allow is refused with INVALID_NAME when something is
// published to it.
func Topic(name string) Destination {
	topic, err := scope.Topic(name)
	if err != nil {
		return Destination{err: err}
	}
	return Destination{subject: protocol.PublishTopicSubject(topic)}
}

// Message is what is published.
type Message struct {
	To   Destination
	Data []byte
	// Headers are delivered as they are. Names beginning Nats- or Waybill-, and
	// those a broker would obey, are refused with RESERVED_HEADER.
	Headers map[string]string
	// DedupID makes a second publish with the same id to the same queue or topic, within
	// two minutes, have no effect: its receipt is the first one's.
	DedupID string
	// DeliverAt and Delay schedule the message: it is not delivered before that
	// time, or that long after it was published, rounded up to milliseconds. At
	// most one is set; at most ten years ahead (protocol.MaxSchedule).
	DeliverAt time.Time
	Delay     time.Duration
	// Group is the message's group: in a FIFO queue its messages are handled in
	// order, one at a time. At most protocol.MaxGroup bytes.
	Group string
	// Priority is handled first the higher it is, in a queue with priorities
	// (MaxPriority).
	Priority uint8
	// JobReceipt is the publisher's own name for a job, delivered with it; at most
	// protocol.MaxReceipt bytes.
	JobReceipt string
}

// PublishOption adds to a message.
type PublishOption func(m *Message)

// Header adds a header.
func Header(name, value string) PublishOption {
	return func(m *Message) {
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		m.Headers[name] = value
	}
}

// DedupID sets Message.DedupID.
func DedupID(id string) PublishOption {
	return func(m *Message) { m.DedupID = id }
}

// DeliverAt sets Message.DeliverAt. A time that has passed is now.
func DeliverAt(t time.Time) PublishOption {
	return func(m *Message) { m.DeliverAt = t }
}

// Delay sets Message.Delay.
func Delay(d time.Duration) PublishOption {
	return func(m *Message) { m.Delay = d }
}

// InGroup sets Message.Group.
func InGroup(group string) PublishOption {
	return func(m *Message) { m.Group = group }
}

// Priority sets Message.Priority.
func Priority(n uint8) PublishOption {
	return func(m *Message) { m.Priority = n }
}

// encode checks the message and forms what goes on the wire. A trace of ctx
// goes along, unless the message has one of its own.
func (m *Message) encode(ctx context.Context) (*nats.Msg, error) {
	if m.To.err != nil {
		return nil, m.To.err
	}
	if m.To.subject == "" {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the message has no destination: set To, for example client.Queue(execution, route)")
	}
	msg := &nats.Msg{Subject: m.To.subject, Data: m.Data}
	if len(m.Headers) > 0 {
		msg.Header = make(nats.Header, len(m.Headers)+2)
		for name, value := range m.Headers {
			msg.Header[name] = []string{value}
		}
		if err := protocol.CheckHeaders(msg.Header); err != nil {
			return nil, err
		}
	}
	if m.DedupID != "" {
		if len(m.DedupID) > protocol.MaxDedupID {
			return nil, protocol.Errorf(protocol.CodeLimitExceeded, "the dedup id has %d bytes, more than %d: send a hash of it", len(m.DedupID), protocol.MaxDedupID)
		}
		if err := setText(msg, protocol.HeaderDedup, m.DedupID); err != nil {
			return nil, err
		}
	}
	if err := m.addressJob(msg); err != nil {
		return nil, err
	}
	if err := m.schedule(msg); err != nil {
		return nil, err
	}
	if m.Group != "" {
		if err := protocol.CheckGroup(m.Group); err != nil {
			return nil, err
		}
		if err := setText(msg, protocol.HeaderGroup, m.Group); err != nil {
			return nil, err
		}
	}
	if m.Priority > 0 {
		setHeader(msg, protocol.HeaderPriority, strconv.Itoa(int(m.Priority)))
	}
	if !tracing.Declined(ctx) || hasBaggage(ctx) {
		injectTrace(ctx, msg)
	}
	return msg, nil
}

// schedule says when the message is to be delivered, if not at once.
func (m *Message) schedule(msg *nats.Msg) error {
	switch {
	case m.Delay < 0:
		return protocol.Errorf(protocol.CodeInvalidArgs, "the delay is %v: it may not be negative", m.Delay)
	case m.Delay > 0 && !m.DeliverAt.IsZero():
		return protocol.Errorf(protocol.CodeInvalidArgs, "the message has a delay and a time of delivery: set one of them")
	case m.Delay > protocol.MaxSchedule:
		return protocol.Errorf(protocol.CodeInvalidArgs, "the delay is %v, more than ten years: the mesh keeps no message that long", m.Delay)
	case m.Delay > 0:
		up := m.Delay + time.Millisecond - 1
		setHeader(msg, protocol.HeaderDelayMs, strconv.FormatInt(up.Milliseconds(), 10))
	case !m.DeliverAt.IsZero():
		if _, err := protocol.CheckSchedule(m.DeliverAt, time.Now()); err != nil {
			return err
		}
		setHeader(msg, protocol.HeaderDeliverAt, m.DeliverAt.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// setText sets a header whose value is of the publisher's choosing.
func setText(msg *nats.Msg, name, value string) error {
	if err := protocol.CheckHeaderValue(name, value); err != nil {
		return err
	}
	setHeader(msg, name, value)
	return nil
}

func setHeader(msg *nats.Msg, name, value string) {
	if msg.Header == nil {
		msg.Header = make(nats.Header, 2)
	}
	msg.Header[name] = []string{value}
}

// headerOf is the header's value, "" if there is none. Names are matched as
// they are written: NATS headers keep their case.
func headerOf(msg *nats.Msg, name string) string {
	if v := msg.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}
