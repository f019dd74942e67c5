//go:build !no_artemis

package artemis

import (
	"context"
	"sync"
)

// leaving are queues that sessions are about to leave: what they had is counted as
// delivered until the broker has it back.
type leaving struct {
	mu  sync.Mutex
	all map[string]*leave
}

type leave struct {
	sessions int
	over     chan struct{}
}

// begin says that one leaves, and returns what says that it has.
func (l *leaving) begin(queue string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[string]*leave)
	}
	at := l.all[queue]
	if at == nil {
		at = &leave{over: make(chan struct{})}
		l.all[queue] = at
	}
	at.sessions++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		at.sessions--
		if at.sessions == 0 {
			delete(l.all, queue)
			close(at.over)
		}
	}
}

// wait waits until none is about to, or ctx ends.
func (l *leaving) wait(ctx context.Context, queue string) {
	l.mu.Lock()
	at := l.all[queue]
	l.mu.Unlock()
	if at == nil {
		return
	}
	select {
	case <-at.over:
	case <-ctx.Done():
	}
}
