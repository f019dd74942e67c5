package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// Job is a function that a named queue of the mesh keeps jobs for: what is
// published there is the function's input, and waits until somebody who serves
// the function (Handle) takes it. A name the mesh does not allow is refused with
// INVALID_NAME when something is published to it.
func Job(queue, namespace, function string) Destination {
	for _, err := range []error{scope.CheckQueue(queue), scope.CheckNamespace(namespace), scope.CheckFunction(function)} {
		if err != nil {
			return Destination{err: err}
		}
	}
	return Destination{
		subject: protocol.PublishJobSubject(queue),
		job:     protocol.FunctionSpec{Namespace: namespace, ID: function},
	}
}

// Enqueue leaves a job for a function of the client's namespace in a named queue
// and returns when it is committed. data is the function's input. Errors are
// those of Publish; NOT_FOUND: there is no such queue, Define it; UNSUPPORTED: the
// mesh is of a version that has none.
func (c *Client) Enqueue(ctx context.Context, queue, function string, data []byte, opts ...PublishOption) (*Receipt, error) {
	return c.Publish(ctx, Job(queue, c.namespace, function), data, opts...)
}

// unserved is an error of a publish, or what it means of a job.
func (c *Client) unserved(ctx context.Context, to Destination, err error) error {
	if to.job.ID == "" || protocol.CodeOf(err) != protocol.CodeUnavailable || !c.hasRouters(ctx, to.subject) {
		return err
	}
	return protocol.Errorf(protocol.CodeUnsupported, "the routers of this mesh are of a version without named queues: upgrade them, or publish to a route or a topic instead")
}

// hasRouters says whether there are routers and none takes what is published on a
// subject.
func (c *Client) hasRouters(ctx context.Context, subject string) bool {
	ctx, cancel := context.WithTimeout(ctx, routersTimeout)
	defer cancel()
	if _, err := c.nc.RequestWithContext(ctx, protocol.SubjectQueues, []byte("{}")); err != nil {
		return false
	}
	_, err := c.nc.RequestWithContext(ctx, subject, nil) // it is no job: nobody stores it
	return errors.Is(err, nats.ErrNoResponders)
}

// routersTimeout bounds the search for routers that do not answer.
const routersTimeout = time.Second

// JobReceipt sets Message.JobReceipt.
func JobReceipt(receipt string) PublishOption {
	return func(m *Message) { m.JobReceipt = receipt }
}

// addressJob says what function a job is for.
func (m *Message) addressJob(msg *nats.Msg) error {
	if m.To.job.ID == "" {
		if m.JobReceipt != "" {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the message has the receipt of a job and goes to no function: publish it to client.Job(queue, namespace, function)")
		}
		return nil
	}
	setHeader(msg, protocol.HeaderFunction, m.To.job.ID)
	if m.To.job.Namespace != protocol.DefaultNamespace {
		setHeader(msg, protocol.HeaderNamespace, m.To.job.Namespace)
	}
	if m.JobReceipt != "" {
		return setText(msg, protocol.HeaderReceipt, m.JobReceipt)
	}
	return nil
}

// QueueConfig says how the jobs of a named queue are handled. What is zero is the
// default of protocol.DefaultQueueDefinition.
type QueueConfig struct {
	// GroupField makes the queue a FIFO one: the member of a job's data, a JSON
	// object, that names its group. Jobs of a group are handled in order, one at a
	// time.
	GroupField   string
	OnDeadLetter protocol.OnDeadLetter // of a FIFO queue
	Concurrency  int                   // jobs at once in the whole mesh
	MaxRetries   int                   // failed deliveries before the dead letter
	Backoff      time.Duration         // before the second attempt; it doubles
	Timeout      time.Duration         // of an attempt
	// MaxPriority makes the queue one with priorities, 1 to 255; PriorityField is
	// the member of a job's data that is its priority. MaxPriority cannot be
	// changed.
	MaxPriority   int
	PriorityField string
}

// Define defines a named queue, or changes it, and returns when the definition
// is stored and in force; changed is false if the queue was so before.
// INVALID_ARGS names the field that is not what it has to be; CONFLICT: somebody
// else changed the queue at the same time, or MaxPriority differs.
func (c *Client) Define(ctx context.Context, queue string, config QueueConfig) (changed bool, err error) {
	body, err := json.Marshal(protocol.DefineRequest{Queue: queue, Config: config.raw()})
	if err != nil {
		return false, protocol.AsError(err)
	}
	answer, err := c.request(ctx, &nats.Msg{Subject: protocol.SubjectDefine, Data: body})
	if err != nil {
		return false, err
	}
	var reply protocol.DefineReply
	if err := json.Unmarshal(answer.Data, &reply); err != nil {
		return false, protocol.Errorf(protocol.CodeInternal, "the registry's answer is not understood: %v", err)
	}
	for _, warning := range reply.Warnings {
		c.log.Warn("the registry warns", "queue", queue, "warning", warning)
	}
	return reply.Changed, nil
}

// raw are the fields of the definition that are not the default.
func (c *QueueConfig) raw() json.RawMessage {
	given := map[string]any{}
	if c.GroupField != "" {
		given["type"], given["message_group_field"] = protocol.TypeFIFO, c.GroupField
	}
	for name, value := range map[string]int64{
		"concurrency": int64(c.Concurrency), "max_retries": int64(c.MaxRetries), "max_priority": int64(c.MaxPriority),
		"backoff_ms": c.Backoff.Milliseconds(), "timeout_ms": c.Timeout.Milliseconds(),
	} {
		if value != 0 {
			given[name] = value
		}
	}
	for name, value := range map[string]string{"on_dead_letter": string(c.OnDeadLetter), "priority_field": c.PriorityField} {
		if value != "" {
			given[name] = value
		}
	}
	raw, err := json.Marshal(given)
	if err != nil {
		return nil // of words and numbers there is none
	}
	return raw
}

// JobOf is the delivery of the job that a function runs for, from its handler's
// context; nil in a direct call.
func JobOf(ctx context.Context) *Delivery {
	d, _ := ctx.Value(jobKey{}).(*Delivery)
	return d
}

type jobKey struct{}

// takeJobs makes the worker that handles a function's jobs, as the function
// handles calls: what it returns settles the job, and its output is dropped.
func (f *Function) takeJobs(concurrency int) {
	spec := protocol.SubscriptionSpec{
		Concurrency: &concurrency,
		// A job may be one of an ordered queue, and is never in two hands.
		Type: protocol.TypeFIFO,
	}
	f.jobs = f.c.newWorker(spec, func(ctx context.Context, d *Delivery) error {
		_, err := f.handler(context.WithValue(ctx, jobKey{}, d), d.Data)
		return err
	})
	f.jobs.function, f.jobs.place = f.spec.ID, tracing.PlaceOf(f.spec.ID)
}

// attach takes note of where the registry has jobs for the function arrive.
func (f *Function) attach(served *protocol.ServedFunction, together bool) error {
	if served.Deliver == "" {
		return nil
	}
	return f.jobs.attach(&protocol.RegisteredSubscription{ID: lastToken(served.Deliver), Deliver: served.Deliver}, together)
}

// current is the function as it is to be declared.
func (f *Function) current() protocol.DeclaredFunction {
	return protocol.DeclaredFunction{FunctionSpec: f.spec, Concurrency: f.jobs.pool.limit}
}
