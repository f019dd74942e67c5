//go:build !no_pulsar

package pulsar

import (
	"slices"
	"sync"
	"time"
)

// waiting is when what was sent to be delivered later is due, by topic: the broker
// counts it among the rest while nobody consumes.
type waiting struct {
	mu  sync.Mutex
	due map[string][]int64 // ns since the epoch, in no order
}

// mostWaiting bounds what is remembered of a topic.
const mostWaiting = 1 << 16

func (w *waiting) add(topic string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due == nil {
		w.due = make(map[string][]int64)
	}
	if len(w.due[topic]) >= mostWaiting {
		w.past(topic)
	}
	if len(w.due[topic]) < mostWaiting {
		w.due[topic] = append(w.due[topic], at.UnixNano())
	}
}

// past forgets what is due. mu is held.
func (w *waiting) past(topic string) int {
	now := time.Now().UnixNano()
	w.due[topic] = slices.DeleteFunc(w.due[topic], func(at int64) bool { return at <= now })
	n := len(w.due[topic])
	if n == 0 {
		delete(w.due, topic)
	}
	return n
}

// count is how many are not due yet.
func (w *waiting) count(topic string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due[topic] == nil {
		return 0
	}
	return int64(w.past(topic))
}

func (w *waiting) forget(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.due, topic)
}
