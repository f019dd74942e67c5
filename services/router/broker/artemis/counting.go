//go:build !no_artemis

package artemis

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// handing is how long the broker may take, after it has confirmed a message, to hand it to
// its queue: before that nothing says that it is there.
const handing = 100 * time.Millisecond

// counting is what the broker has confirmed and may not have counted yet: a message
// is safe before its queue has it, and before that has taken it in.
type counting struct {
	mu        sync.Mutex
	last      uint64
	at        time.Time         // of the last
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
	c.at = time.Now()
	c.confirmed[address] = c.last
}

// handed waits until the broker has handed to their queues what was confirmed.
func (c *counting) handed(ctx context.Context) {
	c.mu.Lock()
	wait := handing - time.Since(c.at)
	c.mu.Unlock()
	if wait > 0 {
		remote.Sleep(ctx, wait)
	}
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
