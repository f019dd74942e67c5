package ledger

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// DefaultBodies is the limit of the Bodies a ledger makes for itself.
const DefaultBodies = 64 << 20

// Bodies bounds what the ledgers of a process keep of messages in memory:
// bodies that were just committed or read, and the frames last read.
type Bodies struct {
	limit int64
	used  atomic.Int64

	mu     sync.Mutex
	frames map[frameKey]*list.Element
	recent *list.List // of *cached, latest first
	cached int64
}

type frameKey struct {
	ledger string
	seq    uint64
}

type cached struct {
	key  frameKey
	data []byte
}

// body is a message in memory and how many entries share it.
type body struct {
	message *Message
	refs    int32
	cost    int64
}

// About what a message takes in memory beside its headers and body: one that was
// read or handed over; a publish, with what NATS keeps of that; and what goes with
// one that is decided.
const (
	messageOverhead = 256
	publishOverhead = 512
	metaOverhead    = 256
)

// NewBodies bounds them at limit bytes. A quarter is for frames.
func NewBodies(limit int64) *Bodies {
	return &Bodies{limit: limit, frames: map[frameKey]*list.Element{}, recent: list.New()}
}

// keep reserves n bytes; false when there is no room.
func (b *Bodies) keep(n int64) bool {
	if b.used.Add(n) > b.limit-b.limit/4 {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *Bodies) release(n int64) { b.used.Add(-n) }

// frame finds a frame that was read before.
func (b *Bodies) frame(k frameKey) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	el := b.frames[k]
	if el == nil {
		return nil
	}
	b.recent.MoveToFront(el)
	c, _ := el.Value.(*cached)
	return c.data
}

// putFrame remembers a frame until others take its room.
func (b *Bodies) putFrame(k frameKey, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.frames[k] != nil || int64(len(data)) > b.limit/4 {
		return
	}
	b.frames[k] = b.recent.PushFront(&cached{k, data})
	b.cached += int64(len(data))
	for b.cached > b.limit/4 {
		b.drop(b.recent.Back())
	}
}

func (b *Bodies) drop(el *list.Element) {
	if old, ok := b.recent.Remove(el).(*cached); ok {
		delete(b.frames, old.key)
		b.cached -= int64(len(old.data))
	}
}
