package ledger

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Running is an open ledger as the rest of the program sees it. Its methods
// may be called from any goroutine.
type Running[E any] struct {
	ledger *Ledger
	epoch  uint64
	owner  Owner[E]
	clock  func() time.Time
	store  *natsStore
	cancel context.CancelCauseFunc
	ctx    context.Context
	work   sync.WaitGroup // what was spawned
	ended  chan struct{}
	err    error // after ended
	timer  *time.Timer

	mu     sync.Mutex
	events []E
	posts  []func() // to be called in the ledger's goroutine
	closed bool
	wake   chan struct{}

	// of the ledger's goroutine:
	spareEvents []E
	sparePosts  []func()
}

// Open takes a ledger over: it reads the log from the floor on, fences the
// last owner off, and starts the ledger's goroutine. It returns after
// Owner.Opened has. The stream must exist.
//
// Errors: a *DamageError when something is missing or cannot be read, and the
// context's; UNAVAILABLE with it, when NATS did not answer.
func Open[E any](ctx context.Context, o Options, owner Owner[E]) (*Running[E], error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &Running[E]{
		owner: owner, clock: o.Now, ended: make(chan struct{}), wake: make(chan struct{}, 1), timer: time.NewTimer(0),
	}
	r.store = newNatsStore(o.Conn, o.Stream, o.Name, r.post)
	t := &takeover{store: r.store, ledger: o.Name, owner: o.Owner, now: o.Now, log: o.Logger, loss: o.AcceptLoss}
	if err := t.run(ctx); err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.ledger = newLedger(o.Name, t.state, r.store, r, o.Bodies, o.Logger)
	r.ledger.owner, r.epoch = owner, t.state.epoch
	r.ledger.lostBefore(t)
	if err := r.store.subscribe(r.ledger); err != nil {
		r.cancel(err)
		return nil, err
	}
	epoch, messages, seq := t.state.epoch, t.state.messages, t.state.seq
	opened := make(chan struct{})
	go r.run(opened)
	<-opened
	o.Logger.Info("ledger open", "ledger", o.Name, "epoch", epoch, "messages", messages, "seq", seq)
	return r, nil
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Bodies == nil {
		o.Bodies = NewBodies(DefaultBodies)
	}
	return o
}

func (o Options) check() error {
	if o.Conn == nil || o.Stream == "" || o.Name == "" || len(o.Name) > MaxName {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a ledger needs a connection, a stream and a name of at most %d bytes", MaxName)
	}
	return nil
}

// lostBefore counts what an open with AcceptLoss left out, and leaves the
// damage behind, so that the next open does not meet it. Numbers of handovers
// may be among what was lost: none is given twice.
func (l *Ledger) lostBefore(t *takeover) {
	if t.damaged == 0 {
		return
	}
	l.stage.leap = lostOrdinals
	l.Count("", Lost, t.lost)
	l.writeOff()
	l.forwardTo(t.damaged + 1)
	l.forward.mending = true
}

func (r *Running[E]) run(opened chan struct{}) {
	defer close(r.ended)
	l := r.ledger
	l.opened()
	close(opened)
	for !l.closed {
		wake := r.turn()
		if !l.closed {
			r.sleep(wake)
		}
	}
	r.err = l.err
	r.cancel(errStopped)
	r.store.unsubscribe()
	r.shut()
	r.work.Wait()
}

// turn handles what came in, then lets the ledger do what is due.
func (r *Running[E]) turn() time.Time {
	events, posts := r.take()
	for i := range posts {
		if !r.ledger.closed {
			posts[i]()
		}
	}
	if len(events) > 0 && !r.ledger.closed {
		r.owner.Handle(events)
	}
	clear(events)
	clear(posts)
	r.spareEvents, r.sparePosts = events[:0], posts[:0]
	return r.ledger.turn()
}

func (r *Running[E]) take() ([]E, []func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, posts := r.events, r.posts
	r.events, r.posts = r.spareEvents, r.sparePosts
	return events, posts
}

func (r *Running[E]) sleep(until time.Time) {
	if until.IsZero() {
		<-r.wake
		return
	}
	r.timer.Reset(until.Sub(r.clock()))
	select {
	case <-r.wake:
	case <-r.timer.C:
	}
}

// shut makes Send say no, and lets nothing more be posted.
func (r *Running[E]) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.events, r.posts = true, nil, nil
	r.timer.Stop()
}

// Send gives the owner an event; Handle gets it. It never blocks. false: the
// ledger is closed, and the event is dropped. (Events that were sent before
// and not handled are dropped too.)
func (r *Running[E]) Send(e E) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.events = append(r.events, e)
	r.ring()
	return true
}

// post has f called in the ledger's goroutine.
func (r *Running[E]) post(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.posts = append(r.posts, f)
		r.ring()
	}
}

func (r *Running[E]) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// now and spawn make r the ledger's env.
func (r *Running[E]) now() time.Time { return r.clock() }

func (r *Running[E]) spawn(work func(context.Context) func()) {
	r.work.Go(func() { r.post(work(r.ctx)) })
}

// Stop commits what is staged and closes the ledger; one that was opened with
// AcceptLoss leaves the damage behind first. When ctx ends first, what
// is not committed by then is left: the error is the context's.
func (r *Running[E]) Stop(ctx context.Context) error {
	r.post(func() { r.ledger.closing = true })
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	r.cancel(cause)
	r.post(func() { r.ledger.close(cause) })
	<-r.ended
	return r.err
}

// Forward asks the ledger to write forward what lies below a sequence of the
// log, so that the log can be purged up to there.
func (r *Running[E]) Forward(target uint64) {
	r.post(func() { r.ledger.forwardTo(target) })
}

// Name is the ledger's name.
func (r *Running[E]) Name() string { return r.ledger.name }

// Done is closed when the ledger is: after Stop, or when it lost the log to
// another owner.
func (r *Running[E]) Done() <-chan struct{} { return r.ended }

// Err is why the ledger closed: nil after Stop, ErrStale after another owner
// took over. It is nil while the ledger is open.
func (r *Running[E]) Err() error {
	select {
	case <-r.ended:
		return r.err
	default:
		return nil
	}
}

// Epoch counts the ledger's owners; it is this one's.
func (r *Running[E]) Epoch() uint64 { return r.epoch }

// Full says that the log takes no commit for want of room. It goes on trying.
func (r *Running[E]) Full() bool { return r.ledger.full.Load() }

// Backlog is the number of bytes that are staged and not committed.
func (r *Running[E]) Backlog() int { return int(r.ledger.backlog.Load()) }
