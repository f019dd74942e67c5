package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

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
// alone, MaxRetries times; an attempt may take as long as the mesh's setting
// activation_timeout_ms says (protocol.DefaultObserverTimeoutMs) unless Timeout
// says otherwise. The queue goes on receiving the topic for a while when the
// observer is gone (subscriber_retention_ms) and then keeps what it holds: who
// observes under the same id next finds that.
//
// Besides the errors of Work there is OBSERVER_ID_CONFLICT: the id is that of
// another worker, which is there, or was a short time ago.
func (c *Client) Observe(ctx context.Context, topic string, h Handler, opts ...WorkOption) (*Worker, error) {
	spec, err := observerSpec(topic, h, opts)
	if err != nil {
		return nil, err
	}
	return c.subscribe(ctx, spec, h)
}

// ObserveFunction is Observe with a function of this client, served with
// Handle, for a handler: it is called with the payload, and what it returns
// beside its error is nobody's. While the client does not serve the function
// the observer is not active: messages wait, unspent, until it does. An empty
// namespace is the client's own.
func (c *Client) ObserveFunction(ctx context.Context, topic, namespace, id string, opts ...WorkOption) (*Worker, error) {
	target := protocol.FunctionSpec{Namespace: cmp.Or(namespace, c.namespace), ID: id}
	if _, err := functionSubject(target.Namespace, target.ID); err != nil {
		return nil, err
	}
	h := c.presence.through(target)
	spec, err := observerSpec(topic, h, opts)
	if err != nil {
		return nil, err
	}
	spec.Target = &target
	return c.subscribe(ctx, spec, h)
}

func observerSpec(topic string, h Handler, opts []WorkOption) (protocol.SubscriptionSpec, error) {
	spec, err := topicSpec(protocol.KindObserve, topic, h, opts)
	if err == nil && spec.ObserverID == "" && spec.Group == "" {
		spec.ObserverID = uuid.NewString()
	}
	return spec, err
}

// through is a handler that calls the function, if it is served.
func (p *presence) through(target protocol.FunctionSpec) Handler {
	return func(ctx context.Context, d *Delivery) error {
		f := p.function(target)
		if f == nil {
			return inactiveError{target}
		}
		_, err := f.handler(ctx, d.Data)
		return err
	}
}

// function is the one of that name that is served, nil if none is.
func (p *presence) function(target protocol.FunctionSpec) *Function {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.functions {
		if f.spec == target {
			return f
		}
	}
	return nil
}

// inactiveError hands back what an observer got that is not active.
type inactiveError struct{ target protocol.FunctionSpec }

func (e inactiveError) Error() string {
	return fmt.Sprintf("%s: the function %s in namespace %s is not served", protocol.CodeObserverNotActive, e.target.ID, e.target.Namespace)
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
	if err := noTuning(&spec); kind == protocol.KindListen && err != nil {
		return spec, err
	}
	if kind == protocol.KindListen && (spec.MaxRetries != 0 || spec.BackoffMs != 0 || spec.ObserverID+spec.Group != "") {
		return spec, protocol.Errorf(protocol.CodeInvalidArgs, "a listener has one attempt, and neither id nor group: leave MaxRetries, Backoff, ID and Group out, or use Observe")
	}
	return spec, nil
}

// ID is the id an observer's queue belongs to. One worker at a time has an id,
// and keeps it over a restart if it comes back under the same Name in the same
// Namespace: it finds the queue, and all that it has missed. Default a UUID,
// which is the observer's as long as it runs: its queue stays behind, an orphan.
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

// ObserverID is the id of the observer that this is; empty if it is none, or one
// of a group.
func (w *Worker) ObserverID() string { return w.spec.ObserverID }

// Dispose removes the subscription: it is Stop. Nothing is delivered any more
// once it returns. An observer's queue stays, and goes on receiving the topic
// for the retention; its id is free.
func (w *Worker) Dispose(ctx context.Context) error { return w.Stop(ctx) }
