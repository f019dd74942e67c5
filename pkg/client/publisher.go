package client

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

const (
	defaultWindow = 4096
	maxWindow     = 1 << 20
	sweepInterval = 250 * time.Millisecond
)

const unknownOutcome = "whether it was stored is not known: publish it again with the same DedupID to be sure"

// errAnswerLost ends publishes whose answers went to a connection that is no more.
var errAnswerLost = protocol.Errorf(protocol.CodeUnavailable, "the connection was lost before the answer to the publish: %s", unknownOutcome)

// Publisher publishes without waiting for each answer: at most a window of
// messages is unanswered at once, and a publish beyond it waits for a place.
// One subscription takes all answers; no goroutine is spent on a message.
type Publisher struct {
	c       *Client
	inbox   string // with its last dot
	answers *nats.Subscription
	like    Receipt // the newest; receive alone has it
	timeout time.Duration

	calls  []atomic.Pointer[call] // those under way, by place
	places chan int               // the free ones
	last   atomic.Uint64          // number of the newest call
	ids    atomic.Uint64          // given by nextID

	flushing chan struct{} // holds a token while a Flush runs
	answered chan struct{} // something was answered
	waiting  atomic.Bool   // a Flush listens to answered
	failure  atomic.Pointer[error]

	stop    chan struct{} // closed: nothing more is sent
	closing sync.Once
	closed  error
	quit    chan struct{} // closed: everything is answered
	sweeper sync.WaitGroup
}

// call is one unanswered publish. Who claims it ends it.
type call struct {
	place   int
	number  uint64
	since   time.Time
	done    func(*Receipt, error)
	span    trace.Span // nil: none
	claimed atomic.Bool
}

// end tells the call's span how it ended.
func (c *call) end(receipt *Receipt, err error) {
	if c.span == nil {
		return
	}
	id := ""
	if receipt != nil {
		id = receipt.MessageID
	}
	tracing.EndPublish(c.span, id, err)
}

// PublisherOption changes a Publisher.
type PublisherOption func(p *Publisher) error

// Window is how many messages may be unanswered. Default 4,096, at most
// 1,048,576.
func Window(n int) PublisherOption {
	return func(p *Publisher) error {
		if n < 1 || n > maxWindow {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the window is %d: it is 1 to %d", n, maxWindow)
		}
		p.calls = make([]atomic.Pointer[call], n)
		return nil
	}
}

// AnswerTimeout is how long an answer is waited for before the publish fails
// with TIMEOUT. Default 10 s.
func AnswerTimeout(d time.Duration) PublisherOption {
	return func(p *Publisher) error {
		if d <= 0 {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the answer timeout is %v: it is above 0", d)
		}
		p.timeout = d
		return nil
	}
}

// NewPublisher starts a Publisher. Close ends it; so does the client's Close.
func (c *Client) NewPublisher(opts ...PublisherOption) (*Publisher, error) {
	p := &Publisher{
		c: c, timeout: answerTimeout, inbox: c.nc.NewInbox() + c.by,
		calls:    make([]atomic.Pointer[call], defaultWindow),
		flushing: make(chan struct{}, 1),
		answered: make(chan struct{}, 1),
		stop:     make(chan struct{}),
		quit:     make(chan struct{}),
	}
	for _, opt := range opts {
		if err := opt(p); err != nil {
			return nil, err
		}
	}
	p.places = make(chan int, len(p.calls))
	for i := range p.calls {
		p.places <- i
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Publisher) start() error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.closing {
		return errClosed()
	}
	var err error
	if p.answers, err = p.c.nc.Subscribe(p.inbox+"*", p.receive); err != nil {
		return sendError(err)
	}
	// Bounded by the window already.
	if err := p.answers.SetPendingLimits(-1, -1); err != nil {
		return sendError(err)
	}
	p.c.publishers[p] = struct{}{}
	p.sweeper.Go(p.sweep)
	return nil
}

// Future is a publish whose answer is still to come.
type Future struct {
	call    *call
	done    chan struct{}
	receipt *Receipt
	err     error
}

// Done is closed when the answer is there.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait returns the answer. When ctx ends first, the publish goes on.
func (f *Future) Wait(ctx context.Context) (*Receipt, error) {
	select {
	case <-f.done:
		return f.receipt, f.err
	case <-ctx.Done():
		return nil, contextError(ctx, "no answer to the publish in time: "+unknownOutcome)
	}
}

func (f *Future) resolve(r *Receipt, err error) {
	f.receipt, f.err = r, err
	close(f.done)
}

// Publish sends a message and returns at once, or when there is a place in the
// window. An error means that nothing was sent.
func (p *Publisher) Publish(ctx context.Context, m Message) (*Future, error) {
	f := &Future{done: make(chan struct{})}
	var err error
	f.call, err = p.begin(ctx, &m, f.resolve)
	return f, err
}

// waitOrForget is Wait; when ctx ends first, nobody waits for the answer any
// more.
func (p *Publisher) waitOrForget(ctx context.Context, f *Future) (*Receipt, error) {
	receipt, err := f.Wait(ctx)
	if ctx.Err() != nil && f.call.claimed.CompareAndSwap(false, true) {
		f.call.end(nil, err)
		p.release(f.call.place)
	}
	return receipt, err
}

// PublishFunc is Publish with a callback, which must not block: it is called
// with the answer, once, unless PublishFunc returns an error.
func (p *Publisher) PublishFunc(ctx context.Context, m Message, done func(*Receipt, error)) error {
	_, err := p.begin(ctx, &m, done)
	return err
}

func (p *Publisher) begin(ctx context.Context, m *Message, done func(*Receipt, error)) (*call, error) {
	ctx, span := p.c.tracePublish(ctx, m)
	c, err := p.call(ctx, m, span, done)
	if err != nil {
		tracing.EndPublish(span, "", err)
	}
	return c, err
}

func (p *Publisher) call(ctx context.Context, m *Message, span trace.Span, done func(*Receipt, error)) (*call, error) {
	msg, err := m.encode(ctx)
	if err != nil {
		return nil, err
	}
	place, err := p.place(ctx)
	if err != nil {
		return nil, err
	}
	c := &call{place: place, number: p.last.Add(1), since: time.Now(), done: done, span: span}
	p.calls[place].Store(c)
	msg.Reply = p.replyTo(c, p.c.declined(ctx, msg))
	if err := p.send(ctx, msg); err != nil && c.claimed.CompareAndSwap(false, true) {
		p.release(place)
		return nil, err
	}
	return c, nil
}

// send sends, once: what meets a lost connection waits for the next.
func (p *Publisher) send(ctx context.Context, msg *nats.Msg) error {
	for {
		select {
		case <-p.stop:
			return errPublisherClosed()
		default:
		}
		err := p.c.nc.PublishMsg(msg)
		if !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return sendError(err)
		}
		p.c.disconnectedNow()
		if err := p.c.connected(ctx); err != nil {
			return err
		}
	}
}

// place waits for the connection and a place in the window.
func (p *Publisher) place(ctx context.Context) (int, error) {
	select {
	case <-p.stop:
		return 0, errPublisherClosed()
	default:
	}
	if err := p.c.connected(ctx); err != nil {
		return 0, err
	}
	select {
	case i := <-p.places:
		return i, nil
	case <-p.stop:
		return 0, errPublisherClosed()
	case <-ctx.Done():
		return 0, contextError(ctx, "no place in the publisher's window in time: nothing was sent")
	}
}

func errPublisherClosed() error {
	return protocol.Errorf(protocol.CodeUnavailable, "the publisher is closed: nothing was sent")
}

func (p *Publisher) replyTo(c *call, declined bool) string {
	b := make([]byte, 0, 64)
	b = append(b, p.inbox...)
	b = strconv.AppendInt(b, int64(c.place), 36)
	b = append(b, '-')
	b = strconv.AppendUint(b, c.number, 36)
	if declined {
		b = append(b, protocol.ReplyDeclined...)
	}
	return string(b)
}

// receive takes an answer. One that comes twice, or too late, finds its call
// gone.
func (p *Publisher) receive(msg *nats.Msg) {
	a, b, _ := strings.Cut(strings.TrimSuffix(msg.Subject[len(p.inbox):], protocol.ReplyDeclined), "-")
	place, errPlace := strconv.ParseInt(a, 36, 32)
	number, errNumber := strconv.ParseUint(b, 36, 64)
	if errPlace != nil || errNumber != nil || place < 0 || int(place) >= len(p.calls) {
		return
	}
	c := p.calls[place].Load()
	if c == nil || c.number != number || !c.claimed.CompareAndSwap(false, true) {
		return
	}
	receipt, err := parseReceipt(msg, &p.like)
	if err == nil {
		p.like = *receipt
	}
	p.finish(c, receipt, err)
}

// finish ends a claimed call. Its place is free after the callback, so that
// Flush returns after it too.
func (p *Publisher) finish(c *call, receipt *Receipt, err error) {
	if err != nil {
		p.failure.CompareAndSwap(nil, &err)
	}
	c.end(receipt, err)
	c.done(receipt, err)
	p.release(c.place)
}

func (p *Publisher) release(place int) {
	p.calls[place].Store(nil)
	p.places <- place
	if p.waiting.Load() {
		select {
		case p.answered <- struct{}{}:
		default:
		}
	}
}

// connectionLost fails what is unanswered.
func (p *Publisher) connectionLost() {
	p.fail(time.Now(), errAnswerLost)
}

// fail ends the calls sent before that time.
func (p *Publisher) fail(before time.Time, err error) {
	for i := range p.calls {
		if c := p.calls[i].Load(); c != nil && c.since.Before(before) && c.claimed.CompareAndSwap(false, true) {
			p.finish(c, nil, err)
		}
	}
}

// sweep ends calls whose answer does not come.
func (p *Publisher) sweep() {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case now := <-tick.C:
			p.fail(now.Add(-p.timeout), protocol.Errorf(protocol.CodeTimeout, "no answer to the publish within %v: %s", p.timeout, unknownOutcome))
		}
	}
}

// Flush returns when everything published before it is answered. Its error is
// that of the first publish that failed since the Flush before, or the end of
// ctx.
func (p *Publisher) Flush(ctx context.Context) error {
	select {
	case p.flushing <- struct{}{}: // also after ctx has ended: if nothing is unanswered, all is well
	default:
		select {
		case p.flushing <- struct{}{}:
		case <-ctx.Done():
			return contextError(ctx, "another Flush of the publisher goes on")
		}
	}
	defer func() { <-p.flushing }()
	p.waiting.Store(true)
	defer p.waiting.Store(false)
	last := p.last.Load()
	for i := range p.calls {
		for p.owes(i, last) {
			select {
			case <-p.answered:
			case <-ctx.Done():
				return contextError(ctx, "some publishes were not answered in time: "+unknownOutcome)
			}
		}
	}
	if failure := p.failure.Swap(nil); failure != nil {
		return *failure
	}
	return nil
}

// owes says whether the call at the place, one of those up to last, is still
// unanswered.
func (p *Publisher) owes(place int, last uint64) bool {
	c := p.calls[place].Load()
	return c != nil && c.number <= last
}

// Close flushes and ends the publisher. What is not answered before ctx ends
// fails. Closing again returns what the first Close did.
func (p *Publisher) Close(ctx context.Context) error {
	p.closing.Do(func() { p.closed = p.close(ctx) })
	return p.closed
}

func (p *Publisher) close(ctx context.Context) error {
	close(p.stop)
	err := p.Flush(ctx)
	close(p.quit)
	p.sweeper.Wait()
	p.fail(time.Now(), protocol.Errorf(protocol.CodeUnavailable, "the publisher was closed before the answer: %s", unknownOutcome))
	p.c.mu.Lock()
	delete(p.c.publishers, p)
	p.c.mu.Unlock()
	return errors.Join(err, sendError(p.answers.Unsubscribe()))
}
