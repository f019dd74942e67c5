package retry

import (
	"cmp"
	"slices"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// dueOrder is a heap of waiting messages, the first due on top; of those due at
// the same time, the one that came first.
type dueOrder []*ledger.Entry

func before(a, b *ledger.Entry) bool { return compareDue(a, b) < 0 }

func compareDue(a, b *ledger.Entry) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Key, b.Key))
}

// fill replaces what is in the heap: a sorted row is one.
func (d *dueOrder) fill(entries []*ledger.Entry) {
	slices.SortFunc(entries, compareDue)
	*d = entries
}

// first is the message that is due first, nil if none waits.
func (d *dueOrder) first() *ledger.Entry {
	if len(*d) == 0 {
		return nil
	}
	return (*d)[0]
}

func (d *dueOrder) add(e *ledger.Entry) {
	h := append(*d, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !before(h[i], h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	*d = h
}

// take removes and returns the first; the heap must not be empty.
func (d *dueOrder) take() *ledger.Entry {
	h := *d
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], nil
	*d = h[:last]
	d.sink(0)
	return first
}

// sink moves what is at i down to its place.
func (d *dueOrder) sink(i int) {
	h := *d
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if before(h[child], h[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// remove takes out of the heap those that f chooses.
func (d *dueOrder) remove(f func(e *ledger.Entry) bool) {
	before := len(*d)
	*d = slices.DeleteFunc(*d, f)
	if len(*d) == before {
		return
	}
	for i := len(*d)/2 - 1; i >= 0; i-- {
		d.sink(i)
	}
}
