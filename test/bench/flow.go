package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// mostMessages bounds the messages of one flow.
	mostMessages = 4 << 20
	// look is how often a flow looks whether it is done.
	look = time.Millisecond
	// lookLeft is how often it asks the server, which has better things to do.
	lookLeft = 10 * time.Millisecond
)

// flow sends numbered messages through a broker, round robin over its queues,
// and counts how often each is handled.
type flow struct {
	broker broker
	queues int
	size   int // bytes of a payload, at least 16
	// observers of a topic, each of which handles every message; 0: each message
	// goes to one of the queues.
	observers int
	filter    string // of the observers; empty: none
	sent      int
	epoch     time.Time // what the time in a payload is since

	calls   []atomic.Uint32 // of each message's handler
	handled atomic.Int64    // calls that have ended
}

func newFlow(b broker, queues, size int) *flow {
	return &flow{broker: b, queues: queues, size: size, epoch: time.Now(), calls: make([]atomic.Uint32, mostMessages)}
}

// call is one call of a handler.
type call struct {
	message int
	nth     int           // call with this message: 1, 2, …
	age     time.Duration // since it was published
}

// work has the messages handled; end says how a call ends.
func (f *flow) work(ctx context.Context, backoff func(queue int) time.Duration, end func(c call) verdict) error {
	return f.broker.work(ctx, work{queues: f.queues, observers: f.observers, filter: f.filter, backoff: backoff, handle: func(payload []byte) verdict {
		now := time.Since(f.epoch)
		if f.filter != "" {
			payload = fromJSON(payload)
		}
		message := int(binary.LittleEndian.Uint64(payload))
		sent := time.Duration(binary.LittleEndian.Uint64(payload[8:]))
		v := end(call{message: message, nth: int(f.calls[message].Add(1)), age: now - sent})
		f.handled.Add(1)
		return v
	}})
}

// publish sends the next message to a queue.
func (f *flow) publish(ctx context.Context, queue int) error {
	if f.sent == mostMessages {
		return fmt.Errorf("more than %d messages in one measurement: raise mostMessages", mostMessages)
	}
	payload := make([]byte, f.size)
	binary.LittleEndian.PutUint64(payload, uint64(f.sent))
	binary.LittleEndian.PutUint64(payload[8:], uint64(time.Since(f.epoch)))
	f.sent++
	if f.filter != "" {
		payload = asJSON(payload)
	}
	return f.broker.publish(ctx, queue, payload)
}

// publishMany sends n messages as fast as the window allows.
func (f *flow) publishMany(ctx context.Context, n int) error {
	for range n {
		if err := f.publish(ctx, f.sent%f.queues); err != nil {
			return err
		}
	}
	return f.broker.flush(ctx)
}

// publishFor sends messages for so long as fast as the window allows.
func (f *flow) publishFor(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := f.publish(ctx, f.sent%f.queues); err != nil {
			return err
		}
	}
	return f.broker.flush(ctx)
}

// publishPaced sends rate messages a second to a queue for so long, evenly.
func (f *flow) publishPaced(ctx context.Context, queue, rate int, d time.Duration) error {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < d; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := f.publish(ctx, queue); err != nil {
			return err
		}
	}
	return f.broker.flush(ctx)
}

// awaitHandled waits until all messages were handled so many times each.
func (f *flow) awaitHandled(ctx context.Context, times int) error {
	want := int64(f.sent * times)
	err := poll(ctx, look, func() (bool, error) { return f.handled.Load() >= want, nil })
	if err != nil {
		return fmt.Errorf("%d of %d calls: %w", f.handled.Load(), want, err)
	}
	return nil
}

// awaitLeft waits until exactly so many messages are unsettled and dead.
func (f *flow) awaitLeft(ctx context.Context, unsettled, dead int) error {
	var u, d int64
	err := poll(ctx, lookLeft, func() (is bool, err error) {
		u, d, err = f.broker.left(ctx)
		return u == int64(unsettled) && d == int64(dead), err
	})
	if err != nil {
		return fmt.Errorf("%d unsettled and %d dead, want %d and %d: %w", u, d, unsettled, dead, err)
	}
	return nil
}

// finish waits until all messages were handled so many times and are settled,
// and fails if one was handled more or less often than that.
func (f *flow) finish(ctx context.Context, times int) error {
	if err := f.awaitHandled(ctx, times); err != nil {
		return err
	}
	if err := f.awaitLeft(ctx, 0, 0); err != nil {
		return err
	}
	return f.check(0, times)
}

// check fails unless each message from the numbered one on was handled so many
// times.
func (f *flow) check(from, times int) error {
	for message := from; message < f.sent; message++ {
		if n := f.calls[message].Load(); n != uint32(times) {
			return fmt.Errorf("message %d of %d was handled %d times, not %d", message, f.sent, n, times)
		}
	}
	return nil
}

// poll asks until the answer is yes.
func poll(ctx context.Context, every time.Duration, yes func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := yes(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
