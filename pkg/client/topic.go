package client

import (
	"context"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Listen asks for a copy of each message that is published to a topic while
// this listener is there, and returns once the mesh stores them for it. Each
// copy has one attempt: if the handler fails, or takes longer than the Timeout
// (default protocol.DefaultTimeoutMs), it is dead-lettered for this listener
// alone. What the listener has not handled when it stops, or its program ends,
// is discarded. Use Observe for messages that are to wait and to be tried again.
//
// Errors are those of Work. It takes the options Name, Concurrency, Timeout and
// InExecution.
func (c *Client) Listen(ctx context.Context, topic string, h Handler, opts ...WorkOption) (*Worker, error) {
	spec, err := topicSpec(protocol.KindListen, topic, h, opts)
	if err != nil {
		return nil, err
	}
	return c.subscribe(ctx, spec, h)
}

// Observe asks for a copy of each message of a topic, from a durable queue of
// its own (ID) or one that it shares with others (Group), and returns once the
// mesh stores them in it. A message that fails is tried again for this observer
// alone, MaxRetries times; an attempt may take protocol.DefaultObserverTimeoutMs
// unless Timeout says otherwise. The queue goes on receiving the topic when the
// observer is gone, and who observes under the same id next finds what it holds.
//
// Besides the errors of Work there is OBSERVER_ID_CONFLICT: another worker
// observes the topic under the id.
func (c *Client) Observe(ctx context.Context, topic string, h Handler, opts ...WorkOption) (*Worker, error) {
	spec, err := topicSpec(protocol.KindObserve, topic, h, opts)
	if err != nil {
		return nil, err
	}
	if spec.ObserverID == "" && spec.Group == "" {
		spec.ObserverID = observerID(c.name, spec.Name)
	}
	return c.subscribe(ctx, spec, h)
}

func topicSpec(kind protocol.Kind, topic string, h Handler, opts []WorkOption) (protocol.SubscriptionSpec, error) {
	spec, err := newSpec(h, opts)
	if err != nil {
		return spec, err
	}
	spec.Kind = kind
	if spec.Topic, err = scope.Topic(topic); err != nil {
		return spec, err
	}
	if kind == protocol.KindListen && (spec.MaxRetries != 0 || spec.BackoffMs != 0 || spec.ObserverID+spec.Group != "") {
		return spec, protocol.Errorf(protocol.CodeInvalidArgs, "a listener has one attempt, and neither id nor group: leave MaxRetries, Backoff, ID and Group out, or use Observe")
	}
	return spec, nil
}

// observerID is the same each time the program runs, as long as its name and
// the subscription's are.
func observerID(program, name string) string {
	id := token(program)
	if name != "" {
		id += ":" + token(name)
	}
	if strings.HasSuffix(id, "-dlq") { // no id may end so
		id += "_"
	}
	return id
}

// token makes part of an id of any text.
func token(text string) string {
	const most = 90
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		default:
			return '-'
		}
	}, text)
	return clean[:min(len(clean), most)]
}

// ID is the id an observer's queue belongs to: who observes under it finds the
// backlog, also in another program. One worker at a time has an id. Default one
// made of the client's name and the subscription's, so that a program which is
// started again finds its backlog.
func ID(id string) WorkOption {
	return workFunc(func(o *workOptions) error {
		o.observerID = id
		return scope.CheckObserver(id)
	})
}

// Group shares one queue among all observers of the topic that name the group,
// in whatever program: each message goes to one of them.
func Group(name string) WorkOption {
	return workFunc(func(o *workOptions) error {
		o.group = name
		return scope.CheckGroup(name)
	})
}

// InExecution says that a subscription to a topic belongs to an execution,
// which then stands in its name. It receives the same messages: topics are
// everybody's.
func InExecution(execution string) WorkOption {
	return workFunc(func(o *workOptions) error {
		o.execution = execution
		return scope.CheckExecution(execution)
	})
}

// Dispose removes the subscription: it is Stop. Nothing is delivered any more
// once it returns. An observer's queue stays, and goes on receiving the topic.
func (w *Worker) Dispose(ctx context.Context) error { return w.Stop(ctx) }
