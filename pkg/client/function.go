package client

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// FunctionHandler answers one call. An error with a code keeps it
// (protocol.Errorf); any other reaches the caller as FUNCTION_FAILED with its
// text. ctx is cancelled when the caller no longer waits, and at shutdown.
type FunctionHandler func(ctx context.Context, input []byte) (output []byte, err error)

// Function is a function this client serves.
type Function struct {
	c       *Client
	spec    protocol.FunctionSpec
	handler FunctionHandler
	pool    *pool[*functionCall]
	sub     *nats.Subscription
	jobs    *Worker // of named queues

	ctx      context.Context
	cancel   context.CancelCauseFunc
	drained  sync.Once
	drainErr error
}

type functionCall struct {
	msg      *nats.Msg
	deadline time.Time // zero: none
}

// Handle serves a function, and returns once it can be called. Clients that
// serve the same function share its calls, and its jobs: those that named queues
// keep for it (Enqueue). A job's handler settles it as a Handler does, and finds
// what it is a delivery of with JobOf.
func (c *Client) Handle(ctx context.Context, namespace, id string, h FunctionHandler, opts ...HandleOption) (*Function, error) {
	if h == nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the handler is nil")
	}
	subject, err := functionSubject(namespace, id)
	if err != nil {
		return nil, err
	}
	o := handleOptions{concurrency: protocol.DefaultConcurrency}
	for _, opt := range opts {
		if err := opt.handle(&o); err != nil {
			return nil, err
		}
	}
	f := &Function{c: c, spec: protocol.FunctionSpec{Namespace: namespace, ID: id}, handler: h}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.pool = newPool(&c.crew, o.concurrency, f.run)
	f.takeJobs(o.concurrency)
	if err := f.start(ctx, subject); err != nil {
		return nil, errors.Join(err, f.drain(ctx))
	}
	return f, nil
}

func functionSubject(namespace, id string) (string, error) {
	if err := scope.CheckNamespace(namespace); err != nil {
		return "", err
	}
	if err := scope.CheckFunction(id); err != nil {
		return "", err
	}
	return protocol.FunctionSubject(namespace, id), nil
}

func (f *Function) start(ctx context.Context, subject string) error {
	if err := f.c.open(); err != nil {
		return err
	}
	var err error
	if f.sub, err = f.c.nc.QueueSubscribe(subject, protocol.FunctionGroup, f.receive); err != nil {
		return sendError(err)
	}
	return f.c.presence.addFunction(ctx, f) // its keepalive flushes the subscription
}

// receive takes a call from the connection and never waits.
func (f *Function) receive(msg *nats.Msg) {
	call := &functionCall{msg: msg}
	if ms := number(msg, protocol.HeaderTimeout); ms > 0 {
		call.deadline = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	if !f.pool.submit(call) {
		f.fail(msg, protocol.Errorf(protocol.CodeUnavailable, "the function's worker is shutting down: call again"))
	}
}

func (f *Function) run(call *functionCall) {
	defer f.pool.uncount(false)
	ctx, cancel := call.within(tracing.Extract(f.ctx, tracing.Headers(call.msg.Header)))
	defer cancel()
	if ctx.Err() != nil {
		return // the caller has given up
	}
	var output []byte
	err := errors.New("the handler ended its goroutine (runtime.Goexit)")
	defer func() { f.respond(call.msg, output, err) }()
	err = guarded(func() (err error) {
		output, err = f.handler(ctx, call.msg.Data)
		return err
	})
}

// within is ctx, bounded by how long the caller waits.
func (c *functionCall) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, c.deadline)
}

func (f *Function) respond(msg *nats.Msg, output []byte, err error) {
	if err != nil {
		f.fail(msg, functionError(err))
		return
	}
	if err := msg.Respond(output); errors.Is(err, nats.ErrMaxPayload) {
		f.fail(msg, protocol.Errorf(protocol.CodePayloadTooLarge, "the function's answer of %d bytes is larger than the mesh takes", len(output)))
	}
}

func functionError(err error) *protocol.Error {
	if coded, ok := errors.AsType[*protocol.Error](err); ok {
		return coded
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return protocol.Errorf(protocol.CodeTimeout, "the function ran out of time: %s", errorText(err.Error()))
	}
	return protocol.Errorf(protocol.CodeFunctionFailed, "%s", errorText(err.Error()))
}

func (f *Function) fail(msg *nats.Msg, e *protocol.Error) {
	answer := nats.NewMsg(msg.Reply)
	answer.Header[protocol.HeaderServiceError] = []string{oneLine(e.Message)}
	answer.Header[protocol.HeaderServiceErrorCode] = []string{strconv.Itoa(e.Code.Status())}
	answer.Data = protocol.MarshalErrorBody(e)
	if err := msg.RespondMsg(answer); err != nil {
		f.c.log.Debug("could not answer a call", "function", f.spec.ID, "error", err)
	}
}

// oneLine is a text's first line, short enough for a header.
func oneLine(s string) string {
	for i, r := range s {
		if r < ' ' || i >= 256 {
			return s[:i]
		}
	}
	return s
}

// Stop takes the function back: no more calls are taken, those under way finish
// within the client's drain window (or until ctx ends), then they are
// cancelled. Stopping again returns the same.
func (f *Function) Stop(ctx context.Context) error {
	f.jobs.draining.Store(true)
	f.c.presence.removeFunction(ctx, f)
	return f.drain(ctx)
}

func (f *Function) drain(ctx context.Context) error {
	f.drained.Do(func() {
		if f.sub != nil {
			drainSubscription(ctx, f.sub)
		}
		f.pool.close()
		var jobs sync.WaitGroup
		var jobsErr error
		jobs.Go(func() { jobsErr = f.jobs.drain(ctx) })
		err := f.finish(ctx)
		jobs.Wait()
		f.drainErr = errors.Join(err, jobsErr)
		f.c.presence.forgetJobs(f)
	})
	return f.drainErr
}

// finish lets calls end within the window, then cancels them.
func (f *Function) finish(ctx context.Context) error {
	window, grace := drainTimes(ctx, f.c.window)
	defer f.cancel(errShutdown)
	if waitFor(ctx, f.pool.ended, window) {
		return nil
	}
	f.cancel(errShutdown)
	if waitFor(ctx, f.pool.ended, grace) {
		return nil
	}
	return protocol.Errorf(protocol.CodeTimeout, "calls of %s run on although their context is cancelled", f.spec.ID)
}

// Call calls a function and returns its output. FUNCTION_NOT_FOUND: nobody
// serves it; FUNCTION_FAILED: its handler failed, with the handler's text;
// TIMEOUT: no answer before ctx ended (10 s for a ctx without a deadline), and
// the function may have run; or the code the function answered with.
func (c *Client) Call(ctx context.Context, namespace, id string, input []byte) ([]byte, error) {
	subject, err := functionSubject(namespace, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	msg := &nats.Msg{Subject: subject, Data: input}
	if deadline, ok := ctx.Deadline(); ok {
		setHeader(msg, protocol.HeaderTimeout, strconv.FormatInt(max(time.Until(deadline).Milliseconds(), 1), 10))
	}
	injectTrace(ctx, msg)
	answer, err := c.exchange(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, protocol.Errorf(protocol.CodeFunctionNotFound, "nobody serves function %s in namespace %s: start its worker", id, namespace)
	case err != nil:
		return nil, requestError(ctx, subject, err)
	default:
		return answer.Data, answerError(answer, protocol.CodeFunctionFailed)
	}
}
