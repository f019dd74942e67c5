package remote

import "sync"

// Turns keep those apart who do something with the same queue.
type Turns struct {
	mu    sync.Mutex
	inUse map[string]*turn
}

type turn struct {
	sync.Mutex
	users int
}

// Take waits for one's turn, and returns what ends it.
func (s *Turns) Take(name string) func() {
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
