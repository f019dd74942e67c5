package remote

import (
	"context"
	"sync"
)

// Sequence does what takes a while: about the same queue one thing after the
// other, about different queues side by side.
type Sequence struct {
	mu    sync.Mutex
	tasks map[string][]func(ctx context.Context) // by queue; the first may be under way
	ready []string                               // queues whose first is not
	wake  chan struct{}
}

// NewSequence makes one that does so many things at once.
func NewSequence(atOnce int) *Sequence {
	return &Sequence{tasks: make(map[string][]func(ctx context.Context)), wake: make(chan struct{}, atOnce)}
}

// Do has f called after what was given before for the queue.
func (q *Sequence) Do(queue string, f func(ctx context.Context)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tasks[queue] = append(q.tasks[queue], f)
	if len(q.tasks[queue]) == 1 {
		q.beginLocked(queue)
	}
}

func (q *Sequence) beginLocked(queue string) {
	q.ready = append(q.ready, queue)
	select {
	case q.wake <- struct{}{}:
	default: // as many as there are have been woken
	}
}

// Run does what it is given until ctx ends.
func (q *Sequence) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range cap(q.wake) {
		all.Go(func() { q.work(ctx) })
	}
	all.Wait()
}

func (q *Sequence) work(ctx context.Context) {
	for {
		select {
		case <-q.wake:
		case <-ctx.Done():
			return
		}
		for queue, f := q.next(); f != nil && ctx.Err() == nil; queue, f = q.next() {
			f(ctx)
			q.done(queue)
		}
	}
}

// next is what may begin; nil if there is nothing.
func (q *Sequence) next() (queue string, f func(ctx context.Context)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) == 0 {
		return "", nil
	}
	queue, q.ready = q.ready[0], q.ready[1:]
	return queue, q.tasks[queue][0]
}

func (q *Sequence) done(queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tasks[queue] = q.tasks[queue][1:]; len(q.tasks[queue]) > 0 {
		q.beginLocked(queue)
	} else {
		delete(q.tasks, queue)
	}
}
