package harness

import (
	"testing"
	"time"
)

const (
	lookEvery = 10 * time.Millisecond  // where a look costs nothing
	lookAtAll = 100 * time.Millisecond // whatever it costs
)

// Await returns once there says so; it fails the test if that takes longer than
// Guard.
func Await(t testing.TB, what string, there func() bool) {
	t.Helper()
	AwaitWithin(t, Guard, what, there)
}

// AwaitWithin is Await with a time of its own.
func AwaitWithin(t testing.TB, within time.Duration, what string, there func() bool) {
	t.Helper()
	if !poll(within, there) {
		t.Fatalf("after %v still not: %s", within, what)
	}
}

// poll looks again and again until there says so, at most that long. It waits about
// as long as a look takes, so that it leaves the machine to what it waits for.
func poll(within time.Duration, there func() bool) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		began := time.Now()
		if there() {
			return true
		}
		select {
		case <-time.After(min(max(time.Since(began), lookEvery), lookAtAll)):
		case <-deadline.C:
			return there()
		}
	}
}

// Receive is the next of a channel.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return ReceiveWithin(t, Guard, what, c)
}

// ReceiveWithin is Receive with a time of its own.
func ReceiveWithin[T any](t testing.TB, within time.Duration, what string, c <-chan T) T {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	select {
	case v := <-c:
		return v
	case <-deadline.C:
		t.Fatalf("after %v nothing came: %s", within, what)
		panic("unreachable")
	}
}

// Wait waits for a time that is part of what is tested, such as how long a
// handler runs or a process is left alone.
func Wait(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
