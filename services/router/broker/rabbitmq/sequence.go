//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"sync"
)

// sequence does one thing after the other that takes a while.
type sequence struct {
	mu    sync.Mutex
	tasks []func(ctx context.Context)
	wake  chan struct{}
}

func newSequence() *sequence { return &sequence{wake: make(chan struct{}, 1)} }

// do has f called after what was given before.
func (q *sequence) do(f func(ctx context.Context)) {
	q.mu.Lock()
	q.tasks = append(q.tasks, f)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run does what it is given until ctx ends.
func (q *sequence) run(ctx context.Context) {
	for {
		select {
		case <-q.wake:
		case <-ctx.Done():
			return
		}
		for f := q.next(); f != nil && ctx.Err() == nil; f = q.next() {
			f(ctx)
		}
	}
}

func (q *sequence) next() func(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) == 0 {
		return nil
	}
	f := q.tasks[0]
	q.tasks[0] = nil
	q.tasks = q.tasks[1:]
	return f
}
