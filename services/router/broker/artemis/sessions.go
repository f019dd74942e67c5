//go:build !no_artemis

package artemis

import "sync"

// sessions are those that consume now, by their queues: the broker alone cannot say
// of what it has delivered whether it has arrived.
type sessions struct {
	mu  sync.Mutex
	all map[string]*session
}

// enter has a session stand instead of the one before; nil: none.
func (s *sessions) enter(queue string, before, now *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case now != nil:
		if s.all == nil {
			s.all = make(map[string]*session)
		}
		s.all[queue] = now
	case s.all[queue] == before: // else another lane's has begun
		delete(s.all, queue)
	}
}

// hand is session.hand of the one that consumes the queue, if there is one.
func (s *sessions) hand(queue string) (given, kept int64, consumed bool) {
	s.mu.Lock()
	x := s.all[queue]
	s.mu.Unlock()
	if x == nil {
		return 0, 0, false
	}
	given, kept = x.hand()
	return given, kept, true
}
