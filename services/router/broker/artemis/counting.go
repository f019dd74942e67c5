//go:build !no_artemis

package artemis

import "sync"

// counting is what the broker has confirmed and may not have counted yet: a message
// is safe, and handed to its queue, before the queue takes it in.
type counting struct {
	mu        sync.Mutex
	last      uint64
	confirmed map[string]uint64 // the last one, by address; of topics by none
	counted   map[string]uint64 // up to which all are
}

// confirm notes that something was confirmed for an address.
func (c *counting) confirm(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.confirmed == nil {
		c.confirmed, c.counted = make(map[string]uint64), make(map[string]uint64)
	}
	c.last++
	c.confirmed[address] = c.last
}

// of says whether something may not be counted of a queue, and returns what says
// that all of that is.
func (c *counting) of(queue string) (is bool, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.last
	return max(c.confirmed[queue], c.confirmed[""]) > c.counted[queue], func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.counted[queue] = max(c.counted[queue], now)
	}
}

// forget is for a queue that is gone.
func (c *counting) forget(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.confirmed, queue)
	delete(c.counted, queue)
}
