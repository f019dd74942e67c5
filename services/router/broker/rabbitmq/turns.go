//go:build !no_rabbitmq

package rabbitmq

import "sync"

// turns keep those apart who do something with the same queue.
type turns struct {
	mu    sync.Mutex
	inUse map[string]*turn
}

type turn struct {
	sync.Mutex
	users int
}

// take waits for one's turn, and returns what ends it.
func (s *turns) take(name string) func() {
	s.mu.Lock()
	if s.inUse == nil {
		s.inUse = make(map[string]*turn)
	}
	one := s.inUse[name]
	if one == nil {
		one = &turn{}
		s.inUse[name] = one
	}
	one.users++
	s.mu.Unlock()
	one.Lock()
	return func() {
		one.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		one.users--
		if one.users == 0 {
			delete(s.inUse, name)
		}
	}
}
