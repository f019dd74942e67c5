//go:build !no_artemis

package artemis

import (
	"maps"
	"sync"
	"time"
)

// hurriedName names a message by its queue and the broker's number.
type hurriedName struct{ address, number string }

// hurry is that a message was let go before its time.
type hurry struct {
	by  string
	due int64
}

// hurried are messages that were let go before their time, which is in them still,
// until it has come. Who does not know of it has them wait for that after all.
type hurried struct {
	mu     sync.Mutex
	all    map[hurriedName]hurry
	tidyAt int // when there are so many, those are forgotten whose time has come
}

const leastTidied = 1 << 10

func (h *hurried) add(name hurriedName, one hurry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[hurriedName]hurry)
	}
	if len(h.all) >= max(h.tidyAt, leastTidied) {
		now := time.Now().UnixNano()
		maps.DeleteFunc(h.all, func(_ hurriedName, one hurry) bool { return one.due < now })
		h.tidyAt = 2 * len(h.all)
	}
	h.all[name] = one
}

func (h *hurried) of(name hurriedName) (hurry, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, is := h.all[name]
	return one, is
}
