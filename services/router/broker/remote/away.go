package remote

import (
	"sync"
	"time"
)

// Away are the copies of messages that wait beside their queues, on a broker that
// counts them nowhere while it moves them back: those that are not back yet, of each
// queue, as far as this owner of its lane knows.
type Away struct {
	way    time.Duration
	mu     sync.Mutex
	queues map[string]*awayFrom
}

// NewAway is for a broker that has a message on its way for as long as that, at most.
func NewAway(way time.Duration) *Away { return &Away{way: way, queues: make(map[string]*awayFrom)} }

// awayFrom are those of one queue.
type awayFrom struct {
	copies map[Ident]struct{}
	until  time.Time // when all are back, whatever happens on the way
}

// maxAway bounds those of a queue. Of so many some are counted by the broker.
const maxAway = 1 << 16

// add notes one that comes back after a delay.
func (a *Away) add(i Ident, delay time.Duration) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.queues[i.Queue]
	if of == nil {
		of = &awayFrom{copies: make(map[Ident]struct{})}
		a.queues[i.Queue] = of
	}
	if len(of.copies) < maxAway {
		of.copies[i] = struct{}{}
	}
	if until := time.Now().Add(delay + a.way); until.After(of.until) {
		of.until = until
	}
}

// Back takes note of one that is back, or was taken away while it waited.
func (a *Away) Back(i Ident) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.queues[i.Queue]
	if of == nil {
		return
	}
	delete(of.copies, i)
	if len(of.copies) == 0 {
		delete(a.queues, i.Queue)
	}
}

func (a *Away) count(queue string) int {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.queues[queue]
	if of == nil {
		return 0
	}
	if time.Now().After(of.until) {
		delete(a.queues, queue)
		return 0
	}
	return len(of.copies)
}

// forget is for a queue that is gone, or has another owner.
func (a *Away) forget(queue string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.queues, queue)
}
