package router

import "time"

// standstill notices that the lane woke up long after it meant to: the process
// was stopped, or starved. The outcomes that came meanwhile lie in the connection
// still, and are read before anybody's time is said to be up.
type standstill struct {
	planned int64 // when the lane meant to wake up at the latest; 0: not yet
	until   int64 // no time limit ends before this
}

const (
	standstillGap   = int64(time.Second)     // how late it is that tells
	standstillGrace = int64(2 * time.Second) // in which what came meanwhile is read
)

// look is called whenever the lane is awake.
func (s *standstill) look(now int64) {
	if s.planned > 0 && now-s.planned >= standstillGap {
		s.until = now + standstillGrace
	}
}
