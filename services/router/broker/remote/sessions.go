package remote

import "sync"

// Sessions are those in which queues are consumed now, one of each queue: what a
// broker has delivered and what has arrived is known together only.
type Sessions[S comparable] struct {
	mu  sync.Mutex
	all map[string]S
}

// Begin has a session stand for its queue.
func (s *Sessions[S]) Begin(queue string, x S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]S)
	}
	s.all[queue] = x
}

// End is for one that is over, unless another lane's has begun.
func (s *Sessions[S]) End(queue string, x S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[queue] == x {
		delete(s.all, queue)
	}
}

// Of is that of a queue; the zero value: there is none.
func (s *Sessions[S]) Of(queue string) S {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[queue]
}
