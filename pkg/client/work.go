package client

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

// Worker handles the deliveries of one route of an execution, or of one topic.
type Worker struct {
	c       *Client
	ref     string
	spec    protocol.SubscriptionSpec
	handler Handler
	pool    *pool[*Delivery]
	place   *tracing.Place
	ready   *gate

	// parents are the contexts that handlers' contexts stem from, in turn: under
	// one alone thousands would wait for their place. Cancelled at shutdown.
	parents  []context.Context
	declined []context.Context // the same, for messages that are not sampled
	function string            // whose jobs these are; empty: none's
	turn     atomic.Uint32
	cancel   context.CancelCauseFunc
	overseer overseer

	draining atomic.Bool
	drained  sync.Once
	drainErr error

	mu      sync.Mutex
	id      string             // the subscription's, from the registry
	sub     *nats.Subscription // of the subject the registry gave
	refused error              // why the registry has not taken it, if so
}

// Work asks for the deliveries of a route of an execution and returns once the
// mesh has registered it. Errors are coded: INVALID_NAME or INVALID_ARGS for
// what can never work, UNAVAILABLE and TIMEOUT when the registry is not there.
//
// Any number of workers, in any number of programs, may share a route: each
// message goes to one of them.
func (c *Client) Work(ctx context.Context, execution, route string, h Handler, opts ...WorkOption) (*Worker, error) {
	spec, err := workSpec(execution, route, h, opts)
	if err != nil {
		return nil, err
	}
	return c.subscribe(ctx, spec, h)
}

// subscribe declares a subscription and returns when the mesh has taken it.
func (c *Client) subscribe(ctx context.Context, spec protocol.SubscriptionSpec, h Handler) (*Worker, error) {
	w := c.newWorker(spec, h)
	w.place = tracing.PlaceOf(w.source())
	w.ref = c.presence.nextRef()
	w.spec.Ref = w.ref
	if err := c.presence.addWorker(ctx, w); err != nil {
		w.draining.Store(true)
		return nil, errors.Join(err, w.drain(ctx))
	}
	return w, nil
}

func (c *Client) newWorker(spec protocol.SubscriptionSpec, h Handler) *Worker {
	w := &Worker{c: c, spec: spec, handler: h, ready: newGate()}
	w.overseer.w = w
	usual, most := protocol.DefaultConcurrency, protocol.MaxConcurrency // the mesh bounds it
	if spec.Concurrency != nil {
		usual, most = *spec.Concurrency, *spec.Concurrency
	}
	w.parents, w.cancel = parents(usual)
	for _, ctx := range w.parents {
		w.declined = append(w.declined, tracing.Decline(ctx))
	}
	w.pool = newPool(&c.crew, most, w.run)
	return w
}

// parents are enough contexts for so many handlers, and what cancels them all.
func parents(handlers int) ([]context.Context, context.CancelCauseFunc) {
	const children = 128 // of each, about
	n := max(handlers/children, 1)
	all := make([]context.Context, 0, n)
	cancels := make([]context.CancelCauseFunc, 0, n)
	for range n {
		ctx, cancel := context.WithCancelCause(context.Background())
		all, cancels = append(all, ctx), append(cancels, cancel)
	}
	return all, func(cause error) {
		for _, cancel := range cancels {
			cancel(cause)
		}
	}
}

func workSpec(execution, route string, h Handler, opts []WorkOption) (protocol.SubscriptionSpec, error) {
	spec, err := newSpec(h, opts)
	if err != nil {
		return spec, err
	}
	if spec.ObserverID+spec.Group+spec.Execution != "" {
		return spec, protocol.Errorf(protocol.CodeInvalidArgs, "ID, Group and InExecution are for subscriptions to a topic: leave them out of Work")
	}
	if err := noTuning(&spec); err != nil {
		return spec, err
	}
	spec.Execution = execution
	spec.Route, err = scope.Route(execution, route)
	return spec, err
}

// newSpec is what the options say of a subscription of any kind.
func newSpec(h Handler, opts []WorkOption) (protocol.SubscriptionSpec, error) {
	none := protocol.SubscriptionSpec{}
	if h == nil {
		return none, protocol.Errorf(protocol.CodeInvalidArgs, "the handler is nil")
	}
	o := workOptions{}
	for _, opt := range opts {
		if err := opt.work(&o); err != nil {
			return none, err
		}
	}
	return protocol.SubscriptionSpec{
		Name: o.name, Execution: o.execution, ObserverID: o.observerID, Group: o.group,
		Concurrency: o.concurrency, MaxRetries: o.maxRetries,
		BackoffMs: o.backoff.Milliseconds(), TimeoutMs: o.timeout.Milliseconds(),
		Type: o.kind, OnDeadLetter: o.onDeadLetter, MaxPriority: o.maxPriority,
		Filters: o.filters, QueueConfig: o.config.raw(),
	}, nil
}

// noTuning refuses what only observers have.
func noTuning(spec *protocol.SubscriptionSpec) error {
	if spec.Filters != nil || spec.QueueConfig != nil {
		return protocol.Errorf(protocol.CodeInvalidArgs, "Filter, Serial, GroupField, BackoffGrows, FirstDelay and Visibility are for Observe: leave them out")
	}
	return nil
}

// ID is the subscription's id, as `waybill subscription ls` shows it.
func (w *Worker) ID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id
}

// Ready returns when the mesh knows this worker: at once after Work, and again
// after a lost connection is back.
func (w *Worker) Ready(ctx context.Context) error {
	select {
	case <-w.ready.passing():
		return nil
	case <-ctx.Done():
		return contextError(ctx, "the mesh has not registered the worker in time")
	}
}

// attach takes note of what the registry has given it. A registry that gives no
// subject for all subscriptions together gives each its own.
func (w *Worker) attach(r *protocol.RegisteredSubscription, together bool) error {
	w.c.presence.note(w, r.ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id, w.refused = r.ID, nil
	if together || w.sub != nil && w.sub.Subject == r.Deliver {
		return nil
	}
	sub, err := w.c.subscribeDeliveries(r.Deliver, w.receive)
	if err != nil {
		return err
	}
	former := w.sub
	w.sub = sub
	if former != nil {
		return sendError(former.Drain())
	}
	return nil
}

// subscribeDeliveries takes all that comes: the concurrency, which the router
// keeps, bounds it.
func (c *Client) subscribeDeliveries(subject string, h nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := c.nc.Subscribe(subject, h)
	if err != nil {
		return nil, sendError(err)
	}
	return sub, sendError(sub.SetPendingLimits(-1, -1))
}

// receive takes a delivery from the connection and never waits.
func (w *Worker) receive(msg *nats.Msg) {
	lane, _, ok := protocol.SplitOutcome(msg.Reply)
	if !ok {
		w.c.log.Warn("ignored a delivery without an outcome subject", "subject", msg.Subject)
		return
	}
	epoch, err := strconv.ParseUint(headerOf(msg, protocol.HeaderEpoch), 10, 64)
	if err != nil {
		epoch = 0 // nothing is said of the owner
	}
	if j := w.begin(msg.Reply, lane, owner{epoch: epoch}); j != nil {
		w.submit(newDelivery(&w.spec, msg, j))
	}
}

// begin notes a delivery; nil if it is not to run.
func (w *Worker) begin(key, lane string, o owner) *job {
	switch state, j := w.c.presence.memory.begin(key, lane, o, w); state {
	case seenNew:
		return j
	case seenFormer:
		w.c.log.Debug("ignored a delivery of a former owner", "lane", lane, "epoch", o.epoch)
	case seenFinished:
		w.c.presence.tell(j)
	case seenRunning: // its handler's outcome will do
	}
	return nil
}

// submit has a delivery handled, or hands it back.
func (w *Worker) submit(d *Delivery) {
	if w.draining.Load() || !w.pool.submit(d) {
		w.c.presence.settle(d.job, handedBack(errShutdown.Error()))
	}
}

// run handles a delivery on a goroutine of the pool.
func (w *Worker) run(d *Delivery) {
	defer w.uncount(d, false)
	if d.overdue() {
		w.missed(d)
		return
	}
	ctx, span := w.traceHandler(d)
	ctx, cancel := d.within(ctx)
	defer cancel()
	w.overseer.add(ctx, d)
	defer w.overseer.remove(d)
	end := ending{outcome: protocol.Failed, text: "the handler ended its goroutine (runtime.Goexit)"}
	defer func() {
		endHandler(span, end)
		w.c.presence.settle(d.job, end)
	}()
	err := guarded(func() error { return w.handler(ctx, d) })
	end = outcomeOf(ctx, err)
	if end.outcome != protocol.Acknowledged && w.c.log.Enabled(ctx, slog.LevelDebug) {
		w.about(ctx, d).DebugContext(ctx, "a delivery was not acknowledged", "outcome", end.outcome)
	}
}

// missed sees to a delivery that came to its turn too late. The mesh has counted
// the timeout; of an ordered queue it waits to hear that nobody runs it.
func (w *Worker) missed(d *Delivery) {
	if w.spec.Type == protocol.TypeFIFO {
		w.c.presence.settle(d.job, handedBack("its time was up before it began"))
		return
	}
	w.c.presence.memory.drop(d.job)
}

func (w *Worker) uncount(d *Delivery, overdue bool) {
	if d.uncounted.CompareAndSwap(false, true) {
		w.pool.uncount(overdue)
	}
}

// Stop hands the route back: no more deliveries are taken, handlers finish
// within the client's drain window (or until ctx ends, if that is sooner), then
// their contexts are cancelled and what they hold is handed back unspent. The
// error says what could not be finished. Stopping again returns the same.
func (w *Worker) Stop(ctx context.Context) error {
	if !w.draining.Swap(true) {
		w.c.presence.declare(ctx)
	}
	err := w.drain(ctx)
	w.c.presence.removeWorker(ctx, w)
	return err
}

// drain ends the handlers and the subscription. The mesh was told before.
func (w *Worker) drain(ctx context.Context) error {
	w.drained.Do(func() {
		for _, d := range w.pool.takeBack() {
			w.c.presence.settle(d.job, handedBack(errShutdown.Error()))
		}
		w.pool.close()
		w.drainErr = w.finish(ctx)
		w.mu.Lock()
		sub := w.sub
		w.mu.Unlock()
		if sub != nil {
			drainSubscription(ctx, sub)
		}
	})
	return w.drainErr
}

// finish lets handlers end within the window, then cancels them, then hands
// back what those hold that do not heed it.
func (w *Worker) finish(ctx context.Context) error {
	window, grace := drainTimes(ctx, w.c.window)
	defer w.cancel(errShutdown)
	if waitFor(ctx, w.pool.ended, window) {
		return nil
	}
	w.cancel(errShutdown)
	if waitFor(ctx, w.pool.ended, grace) {
		return nil
	}
	held := w.c.presence.memory.held(w)
	if w.spec.Type == protocol.TypeFIFO {
		// Handed back, they would run twice at once.
		return protocol.Errorf(protocol.CodeTimeout, "%d handlers of %s run on although their context is cancelled; what follows them in their groups waits until they return, or the program ends",
			len(held), w.source())
	}
	for _, j := range held {
		w.c.presence.settle(j, handedBack(errShutdown.Error()))
	}
	return protocol.Errorf(protocol.CodeTimeout, "%d handlers of %s run on although their context is cancelled; their messages were handed back",
		len(held), w.source())
}

// source is where its deliveries come from, for people.
func (w *Worker) source() string {
	if w.function != "" {
		return w.function
	}
	if w.spec.Topic != "" {
		return scope.TopicPrefix + w.spec.Topic
	}
	return scope.ScopedName(w.spec.Execution, w.spec.Route)
}

// refuse notes that the registry has not taken the subscription.
func (w *Worker) refuse(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = why
	w.ready.shut()
}

// refusal is why the registry has not taken it, nil if it has.
func (w *Worker) refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// current is the worker's specification as it is to be declared.
func (w *Worker) current() protocol.SubscriptionSpec {
	spec := w.spec
	spec.Draining = w.draining.Load()
	return spec
}
