package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// mostGrace is how long handlers may take to heed that they are cancelled.
const mostGrace = 5 * time.Second

// drainTimes are how long handlers may finish, and how long after that they may
// take to heed that they are cancelled. Both end before ctx does.
func drainTimes(ctx context.Context, window time.Duration) (finish, grace time.Duration) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return window, mostGrace
	}
	left := max(time.Until(deadline), 0)
	grace = min(left/10, mostGrace)
	return min(window, left-2*grace), grace
}

// waitFor is false when ended is not closed within d, or before ctx ends.
func waitFor(ctx context.Context, ended <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	default:
	}
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// drainSubscription ends a subscription after what has arrived for it was
// handled.
func drainSubscription(ctx context.Context, sub *nats.Subscription) {
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if sub.Drain() != nil {
		_ = sub.Unsubscribe() // not connected: the server has forgotten it
		return
	}
	waitFor(ctx, closed, mostGrace)
}
