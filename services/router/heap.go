package router

import (
	"container/heap"
	"slices"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// entryHeap is a min-heap of entries, by key or by due time.
type entryHeap struct {
	entries []*broker.Entry
	byDue   bool
}

// Len implements heap.Interface, as the next four do.
func (h *entryHeap) Len() int { return len(h.entries) }

func (h *entryHeap) Less(i, j int) bool {
	a, b := h.entries[i], h.entries[j]
	if h.byDue && a.Due != b.Due {
		return a.Due < b.Due
	}
	return a.Key < b.Key
}

func (h *entryHeap) Swap(i, j int) { h.entries[i], h.entries[j] = h.entries[j], h.entries[i] }

func (h *entryHeap) Push(x any) {
	h.entries = append(h.entries, x.(*broker.Entry)) //nolint:errcheck,forcetypeassert // only add pushes
}

func (h *entryHeap) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries = h.entries[:last]
	return e
}

// add puts e in its place.
func (h *entryHeap) add(e *broker.Entry) { heap.Push(h, e) }

// first is the least entry, nil if there is none.
func (h *entryHeap) first() *broker.Entry {
	if len(h.entries) == 0 {
		return nil
	}
	return h.entries[0]
}

// take removes first.
func (h *entryHeap) take() { heap.Pop(h) }

// remove takes e out; false if it is not here.
func (h *entryHeap) remove(e *broker.Entry) bool {
	i := slices.Index(h.entries, e)
	if i < 0 {
		return false
	}
	heap.Remove(h, i)
	return true
}

// merge adds all of other.
func (h *entryHeap) merge(other *entryHeap) {
	h.entries = append(h.entries, other.entries...)
	heap.Init(h)
}
