package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
)

// Handler does the work of one delivery. What it returns settles the delivery:
//
//   - nil: acknowledged, the message is done;
//   - Reject(err): rejected, the message is dead-lettered at once;
//   - any other error, or a panic: failed, the message comes again after a delay
//     until its tries are used up, then it is dead-lettered with the error's text.
//
// ctx is cancelled at the delivery's time limit and when the worker shuts down.
// A handler that then returns ctx's error hands its message back: at shutdown
// it costs the message no try.
type Handler func(ctx context.Context, d *Delivery) error

// Delivery is one attempt at one message.
type Delivery struct {
	// ID names the message, the same in every attempt and after redrives.
	ID         string
	Execution  string
	Route      string
	Topic      string // instead of the route
	Attempt    int    // 1 at first, and again after a redrive
	MaxRetries int    // attempts that may fail before the dead letter
	Generation int    // how often the message was redriven
	Group      string
	Priority   uint8
	Data       []byte

	msg       *nats.Msg // its headers
	own       nats.Msg  // msg of one that came in a frame
	declined  bool      // it is not sampled, and no header says so
	job       *job
	deadline  time.Time // zero: none
	limit     time.Duration
	uncounted atomic.Bool // it no longer counts in the worker's pool
	watched   watched     // of the overseer alone
}

func newDelivery(spec *protocol.SubscriptionSpec, msg *nats.Msg, j *job) *Delivery {
	d := &Delivery{
		ID:         headerOf(msg, protocol.HeaderMessageID),
		Execution:  spec.Execution,
		Route:      spec.Route,
		Topic:      spec.Topic,
		Attempt:    max(number(msg, protocol.HeaderAttempt), 1),
		MaxRetries: number(msg, protocol.HeaderMaxRetries),
		Generation: number(msg, protocol.HeaderGeneration),
		Group:      headerOf(msg, protocol.HeaderGroup),
		Priority:   uint8(min(number(msg, protocol.HeaderPriority), 255)),
		Data:       msg.Data,
		msg:        msg,
		job:        j,
	}
	d.limitTo(int64(number(msg, protocol.HeaderTimeout)))
	return d
}

// framedDelivery is one that came in a frame.
func framedDelivery(spec *protocol.SubscriptionSpec, f *frame.Delivery, j *job) *Delivery {
	d := &Delivery{
		ID:         f.ID.String(),
		Execution:  spec.Execution,
		Route:      spec.Route,
		Topic:      spec.Topic,
		Attempt:    int(f.Attempt),
		MaxRetries: int(f.MaxRetries),
		Generation: int(f.Generation),
		Group:      f.Group,
		Priority:   f.Priority,
		Data:       f.Body,
		own:        nats.Msg{Header: f.Headers},
		declined:   f.Declined,
		job:        j,
	}
	d.msg = &d.own
	d.limitTo(f.TimeoutMs)
	return d
}

// limitTo begins the delivery's time, which has no limit if ms is 0.
func (d *Delivery) limitTo(ms int64) {
	if ms > 0 {
		d.limit = time.Duration(ms) * time.Millisecond
		d.deadline = time.Now().Add(d.limit)
	}
}

// Header is the value of one of the publisher's headers, "" if there is none.
// Names are matched as they were published, case and all.
func (d *Delivery) Header(name string) string { return headerOf(d.msg, name) }

// Headers are the publisher's headers; Group and Priority have their own fields.
func (d *Delivery) Headers() map[string]string {
	headers := make(map[string]string, len(d.msg.Header))
	for name, values := range d.msg.Header {
		if len(values) > 0 && !protocol.ReservedHeader(name) && name != protocol.HeaderGroup && name != protocol.HeaderPriority {
			headers[name] = values[0]
		}
	}
	return headers
}

// within is ctx, bounded by the delivery's time limit.
func (d *Delivery) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, d.deadline, overdueError{d.limit})
}

func (d *Delivery) overdue() bool { return !d.deadline.IsZero() && !time.Now().Before(d.deadline) }

// number is a header's number, 0 if it is absent or none.
func number(msg *nats.Msg, name string) int {
	v := headerOf(msg, name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0
	}
	return n
}

// Reject says that the message can never succeed: it is dead-lettered at once,
// with err's text.
func Reject(err error) error { return &rejection{err} }

type rejection struct{ err error }

func (r *rejection) Error() string {
	if r.err == nil {
		return "rejected"
	}
	return r.err.Error()
}

func (r *rejection) Unwrap() error { return r.err }

func isRejection(err error) bool {
	_, ok := errors.AsType[*rejection](err)
	return ok
}

// RetryAfter says that the delivery failed and the message is not to be tried
// again before d has passed, nor before the delay that its subscription's
// Backoff gives it. No more than the longest such delay is waited: an hour, or a
// longer Backoff.
func RetryAfter(err error, d time.Duration) error { return &postponement{err, d} }

type postponement struct {
	err   error
	after time.Duration
}

func (p *postponement) Error() string {
	if p.err == nil {
		return "not now"
	}
	return p.err.Error()
}

func (p *postponement) Unwrap() error { return p.err }

// ending is how a delivery ended.
type ending struct {
	outcome protocol.Outcome
	text    string
	after   time.Duration // at least, before the next attempt
}

func handedBack(text string) ending { return ending{outcome: protocol.Cancelled, text: text} }

func isInactive(err error) bool {
	_, ok := errors.AsType[inactiveError](err)
	return ok
}

// errShutdown is why a handler's context is cancelled at shutdown.
var errShutdown = errors.New("the worker is shutting down")

// overdueError is why a handler's context is cancelled at its time limit.
type overdueError struct{ limit time.Duration }

func (e overdueError) Error() string {
	return fmt.Sprintf("the time limit of %v has passed (timeout_ms of the subscription, client.Timeout)", e.limit)
}

func (overdueError) Is(target error) bool { return target == context.DeadlineExceeded }

// outcomeOf is what a handler's error says, with the error's text.
func outcomeOf(ctx context.Context, err error) ending {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return ending{outcome: protocol.Acknowledged}
	case isInactive(err):
		return handedBack(errorText(err.Error()))
	case isRejection(err):
		return ending{outcome: protocol.Rejected, text: errorText(err.Error())}
	case errors.Is(cause, errShutdown) && (errors.Is(err, context.Canceled) || errors.Is(err, errShutdown)):
		return handedBack(errorText(err.Error()))
	case errors.Is(cause, context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded):
		return ending{outcome: protocol.Failed, text: errorText(err.Error() + ": " + cause.Error())}
	}
	end := ending{outcome: protocol.Failed, text: errorText(err.Error())}
	if p, ok := errors.AsType[*postponement](err); ok {
		end.after = p.after
	}
	return end
}

// errorText cuts a text to what the mesh keeps, at a rune, and makes it valid.
func errorText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= protocol.MaxErrorText {
		return s
	}
	cut := protocol.MaxErrorText
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// guarded calls f; a panic becomes an error with its stack.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}
