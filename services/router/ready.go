package router

import (
	"slices"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// readyList holds a queue's deliverable entries in order of key. New ones have
// the highest key and are appended; one that comes back goes to a small heap,
// so that it keeps its place however much arrived meanwhile.
type readyList struct {
	fifo []*broker.Entry // from head on in order of key; nil where one was removed
	head int
	back entryHeap
	size int
}

// push puts e in its place.
func (r *readyList) push(e *broker.Entry) {
	r.size++
	if last := r.last(); last == nil || last.Key < e.Key {
		r.fifo = append(r.fifo, e)
		return
	}
	r.back.add(e)
}

// last is the newest entry of fifo.
func (r *readyList) last() *broker.Entry {
	for i := len(r.fifo) - 1; i >= r.head; i-- {
		if r.fifo[i] != nil {
			return r.fifo[i]
		}
	}
	return nil
}

// peek is the entry with the lowest key, nil if there is none.
func (r *readyList) peek() *broker.Entry {
	r.skip()
	var e *broker.Entry
	if r.head < len(r.fifo) {
		e = r.fifo[r.head]
	}
	if b := r.back.first(); b != nil && (e == nil || b.Key < e.Key) {
		e = b
	}
	return e
}

// pop removes what peek shows.
func (r *readyList) pop() *broker.Entry {
	e := r.peek()
	if e == nil {
		return nil
	}
	r.size--
	if r.back.first() == e {
		r.back.take()
		return e
	}
	r.fifo[r.head] = nil
	r.skip()
	return e
}

// skip moves head past what was removed, and gives memory back.
func (r *readyList) skip() {
	for r.head < len(r.fifo) && r.fifo[r.head] == nil {
		r.head++
	}
	switch {
	case r.head == len(r.fifo):
		r.fifo, r.head = r.fifo[:0], 0
		if cap(r.fifo) > 1024 {
			r.fifo = nil
		}
	case r.head > 1024 && r.head > len(r.fifo)/2:
		r.fifo = slices.Clone(r.fifo[r.head:])
		r.head = 0
	}
}

// remove takes e out; false if it is not here.
func (r *readyList) remove(e *broker.Entry) bool {
	if r.back.remove(e) {
		r.size--
		return true
	}
	i := r.find(e)
	if i < 0 {
		return false
	}
	r.fifo[i] = nil
	r.size--
	if i == r.head {
		r.skip()
	}
	return true
}

// find is e's index in fifo, -1 if it is not there. Removed ones leave holes,
// which a binary search has to step over.
func (r *readyList) find(e *broker.Entry) int {
	lo, hi := r.head, len(r.fifo)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		probe := mid
		for probe < hi && r.fifo[probe] == nil {
			probe++
		}
		switch {
		case probe == hi || r.fifo[probe].Key > e.Key:
			hi = mid
		case r.fifo[probe].Key < e.Key:
			lo = probe + 1
		default:
			return probe
		}
	}
	return -1
}

// ahead yields entries from the lowest key on, the heap's in no order after
// the first, until f returns false; then it does too.
func (r *readyList) ahead(f func(*broker.Entry) bool) bool {
	for _, e := range r.back.entries {
		if !f(e) {
			return false
		}
	}
	for _, e := range r.fifo[r.head:] {
		if e != nil && !f(e) {
			return false
		}
	}
	return true
}

// take moves all entries of other, whose keys are lower than any of r's that
// did not come back, to r.
func (r *readyList) take(other *readyList) {
	other.skip()
	r.fifo, r.head = append(other.fifo[other.head:], r.fifo[r.head:]...), 0
	r.back.merge(&other.back)
	r.size += other.size
	*other = readyList{}
}
