package ledger

import "sort"

// frame is a frame of the log that may be needed. What is live pins the frame
// that states it; the oldest pinned frame is the floor.
type frame struct {
	seq   uint64 // in the log
	first uint64 // ordinal
	pins  int
	// bodies counts the entries of each record that has several: they have one
	// message together.
	bodies map[uint32]int
}

func (f *frame) unpin() {
	if f != nil {
		f.pins--
	}
}

// frames are the frames from the floor on, in order.
type frames struct {
	list []*frame
	head int
}

func (s *frames) push(f *frame) { s.list = append(s.list, f) }

func (s *frames) live() []*frame { return s.list[s.head:] }

// trim drops what is below the floor and calls gone with it. The newest frame
// stays in any case: a ledger's subject must never become empty.
func (s *frames) trim(gone func(*frame)) {
	for s.head < len(s.list)-1 && s.list[s.head].pins == 0 {
		gone(s.list[s.head])
		s.list[s.head] = nil
		s.head++
	}
	if s.head > 1024 && s.head > len(s.list)/2 {
		s.list = append(s.list[:0:0], s.list[s.head:]...)
		s.head = 0
	}
}

// floor is the oldest frame that is needed; nil before the first.
func (s *frames) floor() *frame {
	if s.head == len(s.list) {
		return nil
	}
	return s.list[s.head]
}

// span is how many frames there are from sequence from to sequence to.
func (s *frames) span(from, to uint64) int {
	l := s.live()
	at := func(seq uint64) int {
		return sort.Search(len(l), func(i int) bool { return l[i].seq >= seq })
	}
	return at(to) - at(from) + 1
}
