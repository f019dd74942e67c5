package client

import "sync"

// keepIdle is how many goroutines of a crew wait for work; more than that end.
const keepIdle = 256

// crew is the goroutines that run all of a client's handlers. The one that
// worked last is called first: what it needs is still in the processor's cache.
type crew struct {
	mu      sync.Mutex
	idle    []chan func()
	closed  bool
	resting sync.WaitGroup // the idle ones
}

// run calls f on a goroutine of the crew.
func (c *crew) run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		calls := c.idle[n-1]
		c.idle = c.idle[:n-1]
		calls <- f // it is waiting: there is room
		return
	}
	go c.work(f)
}

// work runs f, then what it is called for.
func (c *crew) work(f func()) {
	calls := make(chan func(), 1)
	for ok := true; ok; {
		f()
		if !c.rest(calls) {
			return
		}
		f, ok = <-calls
		c.resting.Done()
	}
}

// rest makes a goroutine idle; false if it is not needed.
func (c *crew) rest(calls chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= keepIdle {
		return false
	}
	c.idle = append(c.idle, calls)
	c.resting.Add(1)
	return true
}

// close ends the idle goroutines, and lets the others end after what they do.
func (c *crew) close() {
	c.mu.Lock()
	c.closed = true
	for _, calls := range c.idle {
		close(calls)
	}
	c.idle = nil
	c.mu.Unlock()
	c.resting.Wait()
}
