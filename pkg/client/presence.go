package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
)

const (
	// courtesy bounds what a shutdown tells the registry, which finds out by
	// itself when it is not there.
	courtesy       = 2 * time.Second
	firstBeat      = time.Second // until the registry says how often
	firstHelloWait = 250 * time.Millisecond
	mostHelloWait  = 10 * time.Second
)

// mostTogether bounds the workers and functions that are declared for the first
// time along with one, so that all are what a registry takes of one client.
const mostTogether = 4096

// sdk names this library in the registry.
const sdk = "go"

// presence is this client as a worker of the mesh: what it declares to the
// registry, its keepalive, and what it answers to routers. It begins with the
// first Work or Handle.
type presence struct {
	c      *Client
	id     string
	memory *memory
	outbox *outbox

	// talking holds a token while a Hello is under way: the registry sees one
	// declaration after another.
	talking chan struct{}

	mu        sync.Mutex
	started   bool
	closed    bool
	left      atomic.Bool // it has said bye
	revision  uint64
	refs      int
	workers   []*Worker
	functions []*Function
	interval  time.Duration
	fresh     map[any]bool // workers and functions that are not declared yet
	warned    map[string]bool
	inbox     string // keepalives are answered here
	// What the registry has given: a subject for all deliveries, and whose each
	// subscription is.
	deliveries    *nats.Subscription
	subscriptions map[string]*Worker

	settling sync.RWMutex // read: an ending is noted, and not told yet

	renew  chan struct{} // say Hello again
	told   uint64        // the newest connection on which what was lost was told; loop's
	stop   context.CancelFunc
	ending sync.WaitGroup
}

func newPresence(c *Client) *presence {
	return &presence{
		c: c, id: rand.Text()[:22], memory: newMemory(),
		talking:  make(chan struct{}, 1),
		interval: firstBeat,
		fresh:    make(map[any]bool),
		warned:   make(map[string]bool),

		subscriptions: make(map[string]*Worker),
		renew:         make(chan struct{}, 1),
	}
}

func (p *presence) nextRef() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refs++
	return strconv.Itoa(p.refs)
}

// addWorker declares one more worker; if that fails it is as if it had not
// been.
func (p *presence) addWorker(ctx context.Context, w *Worker) error {
	return p.add(ctx, w, func() { p.workers = append(p.workers, w) }, func() {
		p.workers = slices.DeleteFunc(p.workers, func(o *Worker) bool { return o == w })
	})
}

func (p *presence) addFunction(ctx context.Context, f *Function) error {
	return p.add(ctx, f, func() { p.functions = append(p.functions, f) }, func() {
		p.functions = slices.DeleteFunc(p.functions, func(o *Function) bool { return o == f })
	})
}

// add adds a worker or function and declares it, or undoes it.
func (p *presence) add(ctx context.Context, one any, do, undo func()) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	if err := p.start(); err != nil {
		return err
	}
	p.locked(func() {
		do()
		p.fresh[one] = true
	})
	err := p.declareFresh(ctx, one)
	if w, ok := one.(*Worker); ok && err == nil {
		err = w.refusal()
	}
	p.locked(func() {
		delete(p.fresh, one)
		if err != nil {
			undo()
		}
	})
	if err != nil {
		p.again() // the registry may have it all the same
	}
	return err
}

// declareFresh declares one, and with it others that wait for their turn: who
// works on thousands of routes says Hello a few times. If the registry refuses
// them together it may be for another's sake.
func (p *presence) declareFresh(ctx context.Context, one any) error {
	if err := p.talk(ctx); err != nil {
		return err
	}
	defer p.hush()
	if !p.isFresh(one) {
		return nil
	}
	err := p.hello(ctx, one, mostTogether)
	if refused(err) {
		err = p.hello(ctx, one, 0)
	}
	return err
}

func (p *presence) isFresh(one any) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fresh[one]
}

// refused says whether the registry has understood, and said no.
func refused(err error) bool {
	switch protocol.CodeOf(err) {
	case "", protocol.CodeUnavailable, protocol.CodeTimeout:
		return false
	default:
		return true
	}
}

func (p *presence) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// talk waits for the turn to say Hello.
func (p *presence) talk(ctx context.Context) error {
	select {
	case p.talking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return contextError(ctx, "another registration of this client is not answered yet")
	}
}

func (p *presence) hush() { <-p.talking }

// removeWorker takes back what addWorker declared; the registry notices by
// itself if it cannot be told.
func (p *presence) removeWorker(ctx context.Context, w *Worker) {
	id := w.ID()
	p.remove(ctx, func() {
		p.workers = slices.DeleteFunc(p.workers, func(o *Worker) bool { return o == w })
		delete(p.subscriptions, id)
	})
}

// note remembers whose a subscription is.
func (p *presence) note(w *Worker, subscription string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscriptions[subscription] = w
}

func (p *presence) removeFunction(ctx context.Context, f *Function) {
	p.remove(ctx, func() { p.functions = slices.DeleteFunc(p.functions, func(o *Function) bool { return o == f }) })
}

// forgetJobs has deliveries of a function's jobs come again elsewhere.
func (p *presence) forgetJobs(f *Function) {
	id := f.jobs.ID()
	p.locked(func() {
		if p.subscriptions[id] == f.jobs { // and not another's of the same name
			delete(p.subscriptions, id)
		}
	})
}

func (p *presence) remove(ctx context.Context, remove func()) {
	before := p.size()
	p.locked(remove)
	if p.size() != before {
		p.declare(ctx)
	}
}

func (p *presence) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers) + len(p.functions)
}

// declare tells the registry what is, for a moment; if that fails it is told
// again later.
func (p *presence) declare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	if p.talk(ctx) != nil {
		p.again()
		return
	}
	defer p.hush()
	if p.isClosed() || !p.c.link.isOpen.Load() || p.hello(ctx, nil, mostTogether) != nil {
		p.again()
	}
}

func (p *presence) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// start begins the keepalive and answers routers.
func (p *presence) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed()
	}
	if p.started {
		return nil
	}
	p.inbox, p.outbox = p.c.nc.NewInbox(), newOutbox(p.c.nc)
	for subject, handler := range map[string]nats.MsgHandler{
		p.inbox: p.keepaliveAnswered,
		protocol.WorkerSubject(p.id, protocol.VerbProbe):  func(m *nats.Msg) { p.respond(m, nil) },
		protocol.WorkerSubject(p.id, protocol.VerbClaims): p.answerClaims,
	} {
		if _, err := p.c.nc.Subscribe(subject, handler); err != nil {
			return sendError(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.ending.Go(func() { p.loop(ctx) })
	p.ending.Go(func() { p.outbox.run(ctx) })
	p.started = true
	return nil
}

// again asks for another Hello: the registry does not know this worker, or the
// connection is a new one.
func (p *presence) again() {
	select {
	case p.renew <- struct{}{}:
	default:
	}
}

func (p *presence) loop(ctx context.Context) {
	for {
		beat := time.NewTimer(p.beatInterval())
		select {
		case <-ctx.Done():
		case <-beat.C:
			p.beat(ctx)
			if p.someRefused() {
				p.again()
			}
		case <-p.renew:
			p.resume(ctx)
		}
		beat.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (p *presence) beatInterval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.interval
}

// beat says that this worker is there. The outcomes that went before it on the
// connection are then known to have reached the server; what was sent on a former
// connection is not, before it was told again.
func (p *presence) beat(ctx context.Context) {
	p.mu.Lock()
	body, err := json.Marshal(protocol.Keepalive{Revision: p.revision, InFlight: p.memory.inFlight()})
	p.mu.Unlock()
	if err != nil || !p.c.link.isOpen.Load() {
		return
	}
	connection, mark := p.connection(), p.mark()
	p.outbox.flush()
	if p.c.nc.PublishRequest(protocol.SubjectKeepalive+p.id, p.inbox, body) == nil {
		p.confirm(ctx, connection, mark)
	}
}

// confirm waits until the server has what was sent on the connection, so that what
// ended up to the mark need not be told again.
func (p *presence) confirm(ctx context.Context, connection, mark uint64) {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	if p.told == connection && p.c.nc.FlushWithContext(ctx) == nil && p.connection() == connection {
		p.memory.confirm(mark)
	}
}

// mark is the number of the newest ending; all up to it were told.
func (p *presence) mark() uint64 {
	p.settling.Lock()
	defer p.settling.Unlock()
	return p.memory.mark()
}

// connection is the number of the client's connection: 0 for its first.
func (p *presence) connection() uint64 { return p.c.nc.Stats().Reconnects }

func (p *presence) keepaliveAnswered(msg *nats.Msg) {
	var answer protocol.KeepaliveReply
	if headerOf(msg, protocol.HeaderStatus) == "" && json.Unmarshal(msg.Data, &answer) == nil && !answer.Known {
		p.again()
	}
}

// resume makes the mesh know this worker again: first what its handlers ended
// with meanwhile, then what it wants.
func (p *presence) resume(ctx context.Context) {
	p.tellAgain(ctx)
	wait := firstHelloWait
	for ctx.Err() == nil {
		err := p.helloAgain(ctx)
		if err == nil || ctx.Err() != nil || p.left.Load() {
			return
		}
		p.c.log.Warn("the registry did not take the registration; trying again", "error", err, "wait", wait)
		waitFor(ctx, nil, wait)
		wait = min(2*wait, mostHelloWait)
	}
}

// tellAgain tells on this connection what may have been lost with a former one.
func (p *presence) tellAgain(ctx context.Context) {
	connection, mark := p.connection(), p.mark()
	for _, j := range p.memory.unconfirmed() {
		p.tell(j)
	}
	p.outbox.flush()
	p.told = connection
	p.confirm(ctx, connection, mark)
}

func (p *presence) helloAgain(ctx context.Context) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	if err := p.talk(ctx); err != nil {
		return err
	}
	defer p.hush()
	return p.hello(ctx, nil, mostTogether)
}

// hello declares all that this worker wants, of what is fresh one and so many
// others, and applies the answer. The caller has the turn to talk.
func (p *presence) hello(ctx context.Context, one any, others int) error {
	d := p.declaration(one, others)
	body, err := json.Marshal(d.hello)
	if err != nil {
		return protocol.AsError(err)
	}
	answer, err := p.c.request(ctx, &nats.Msg{Subject: protocol.SubjectHello, Data: body})
	if err != nil {
		return err
	}
	var registered protocol.Registered
	if err := json.Unmarshal(answer.Data, &registered); err != nil {
		return protocol.Errorf(protocol.CodeInternal, "the registry's answer is not understood: %v", err)
	}
	return p.apply(ctx, d, &registered)
}

// declaration is a Hello and what it declares.
type declaration struct {
	hello   protocol.Hello
	workers map[string]*Worker // by ref
	// functions by their names
	functions map[protocol.FunctionSpec]*Function
	all       []any
}

func (p *presence) declaration(one any, others int) *declaration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision++
	d := &declaration{workers: make(map[string]*Worker, len(p.workers)), functions: make(map[protocol.FunctionSpec]*Function), hello: protocol.Hello{
		WorkerID: p.id, Name: p.c.name, Namespace: p.c.namespace, SDK: sdk, Revision: p.revision, Frames: true, Jobs: !p.closed,
		Outcomes: []protocol.Outcome{protocol.Acknowledged, protocol.Failed, protocol.Rejected, protocol.Cancelled},
	}}
	others = min(others, mostTogether-(len(p.workers)+len(p.functions)-len(p.fresh))-1)
	included := func(x any) bool {
		if x == one || !p.fresh[x] {
			return true
		}
		others--
		return others >= 0
	}
	for _, w := range p.workers {
		if included(w) {
			d.workers[w.ref] = w
			d.hello.Subscriptions = append(d.hello.Subscriptions, w.current())
			d.all = append(d.all, w)
		}
	}
	for _, f := range p.functions {
		if included(f) {
			d.hello.Functions = append(d.hello.Functions, f.current())
			d.functions[f.spec] = f
			d.all = append(d.all, f)
		}
	}
	return d
}

// someRefused says whether a subscription that was taken once is refused now:
// it is asked for again and again.
func (p *presence) someRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.workers, func(w *Worker) bool { return !p.fresh[w] && w.refusal() != nil })
}

func (p *presence) apply(ctx context.Context, d *declaration, r *protocol.Registered) error {
	for i := range r.Subscriptions {
		if w := d.workers[r.Subscriptions[i].Ref]; w != nil {
			if err := w.attach(&r.Subscriptions[i], r.Deliver != ""); err != nil {
				return err
			}
		}
	}
	for i := range r.Functions {
		if f := d.functions[r.Functions[i].FunctionSpec]; f != nil {
			if err := f.attach(&r.Functions[i], r.Deliver != ""); err != nil {
				return err
			}
		}
	}
	if err := p.attach(r.Deliver); err != nil {
		return err
	}
	p.warn(r.Warnings)
	for i := range r.Refused {
		if w := d.workers[r.Refused[i].Ref]; w != nil {
			p.refuse(w, &r.Refused[i].Error)
		}
	}
	if r.KeepaliveMs > 0 {
		p.locked(func() { p.interval = time.Duration(r.KeepaliveMs) * time.Millisecond })
	}
	// A router that sent a delivery before the subscription was there looks
	// again when it hears a keepalive; the beat's flush is the subscription's.
	p.beat(ctx)
	for _, w := range d.workers {
		if w.refusal() == nil {
			w.ready.open()
		}
	}
	p.locked(func() {
		for _, x := range d.all {
			delete(p.fresh, x)
		}
	})
	return nil
}

// attach subscribes to what arrives for all workers together. A registry that
// gives nothing for that may be one among others that do: what was given stays.
func (p *presence) attach(subject string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if subject == "" || p.deliveries != nil && p.deliveries.Subject == subject {
		return nil
	}
	sub, err := p.c.subscribeDeliveries(subject, p.receive)
	if err != nil {
		return err
	}
	former := p.deliveries
	p.deliveries = sub
	if former != nil {
		return sendError(former.Drain())
	}
	return nil
}

// refuse tells a worker that it was not taken: its caller, or the log if the
// caller was told otherwise before.
func (p *presence) refuse(w *Worker, why error) {
	if !p.isFresh(w) {
		p.c.log.Warn("the registry does not take a subscription that it took before; asking again", "topic", w.spec.Topic, "error", why)
	}
	w.refuse(why)
}

func (p *presence) warn(warnings []string) {
	for _, text := range warnings {
		if !p.warned[text] {
			p.warned[text] = true
			p.c.log.Warn("the registry warns", "warning", text)
		}
	}
}

// lost says that the mesh may not know this worker any more.
func (p *presence) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		w.ready.shut()
	}
}

// settle notes how a delivery ended and tells the mesh; a delivery that has
// ended already stays as it was.
func (p *presence) settle(j *job, end ending) {
	p.settling.RLock()
	defer p.settling.RUnlock()
	if p.memory.finish(j, end) {
		p.tell(j)
	}
}

// tell publishes how a job ended. What cannot be sent is remembered, and sent
// when the connection is back.
func (p *presence) tell(j *job) {
	if p.memory.takesFrames(j.lane) {
		token := j.key[len(protocol.SubjectOutcome)+len(j.lane)+1:]
		p.outbox.put(j.lane, &frame.Outcome{Token: token, Outcome: j.outcome, Text: j.text, RetryAfterMs: j.afterMs()})
		return
	}
	if j.outcome == protocol.Acknowledged {
		_ = p.c.nc.Publish(j.key, nil)
		return
	}
	msg := &nats.Msg{
		Subject: j.key, Data: []byte(j.text),
		Header: nats.Header{protocol.HeaderOutcome: []string{string(j.outcome)}},
	}
	if j.after > 0 {
		setHeader(msg, protocol.HeaderRetryAfter, strconv.FormatInt(j.afterMs(), 10))
	}
	_ = p.c.nc.PublishMsg(msg)
}

func (p *presence) answerClaims(msg *nats.Msg) {
	var q protocol.ClaimsRequest
	if err := json.Unmarshal(msg.Data, &q); err != nil {
		p.c.log.Warn("ignored a request that is not understood", "subject", msg.Subject, "error", err)
		return
	}
	p.memory.newer(q.Lane, owner{epoch: q.Epoch, frames: q.Frames})
	claims, err := json.Marshal(p.memory.claims(q.Lane, int(p.c.nc.MaxPayload()/2)))
	if err != nil {
		p.c.log.Error("could not answer what this worker holds", "error", err)
		return
	}
	p.respond(msg, claims)
}

func (p *presence) respond(msg *nats.Msg, data []byte) {
	if err := msg.Respond(data); err != nil {
		p.c.log.Debug("could not answer", "subject", msg.Subject, "error", err)
	}
}

// close drains all workers and functions at once, says Bye and ends.
func (p *presence) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	started, workers, functions := p.started, slices.Clone(p.workers), slices.Clone(p.functions)
	p.mu.Unlock()
	if !started {
		return nil
	}
	for _, w := range workers {
		w.draining.Store(true)
	}
	for _, f := range functions {
		f.jobs.draining.Store(true)
	}
	p.announceDrain(ctx)
	err := drainAll(ctx, workers, functions)
	p.mu.Lock()
	deliveries := p.deliveries
	p.mu.Unlock()
	if deliveries != nil {
		drainSubscription(ctx, deliveries)
	}
	p.outbox.flush()
	p.bye(ctx)
	p.stop()
	p.ending.Wait()
	return err
}

func (p *presence) announceDrain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	if p.c.link.isOpen.Load() && p.talk(ctx) == nil {
		defer p.hush()
		if err := p.hello(ctx, nil, mostTogether); err != nil {
			p.c.log.Debug("could not announce the shutdown", "error", err)
		}
	}
}

func drainAll(ctx context.Context, workers []*Worker, functions []*Function) error {
	var drains sync.WaitGroup
	errs := make([]error, len(workers)+len(functions))
	for i, w := range workers {
		drains.Go(func() { errs[i] = w.drain(ctx) })
	}
	for i, f := range functions {
		drains.Go(func() { errs[len(workers)+i] = f.drain(ctx) })
	}
	drains.Wait()
	return errors.Join(errs...)
}

// bye ends the registration after all outcomes are with the server.
func (p *presence) bye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), courtesy)
	defer cancel()
	if !p.c.link.isOpen.Load() || p.c.nc.FlushWithContext(ctx) != nil {
		return
	}
	p.left.Store(true)
	p.mu.Lock()
	bye := protocol.Bye{WorkerID: p.id, Revision: p.revision}
	p.mu.Unlock()
	body, err := json.Marshal(bye)
	if err != nil {
		return
	}
	if _, err := p.c.request(ctx, &nats.Msg{Subject: protocol.SubjectBye, Data: body}); err != nil {
		p.c.log.Debug("could not say goodbye to the registry", "error", err)
	}
}
