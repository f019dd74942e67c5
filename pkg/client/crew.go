package client

import "sync"

// keepIdle is how many goroutines of a crew wait for work; more than that end.
const keepIdle = 256

// crew is the goroutines that run all of a client's handlers. They are called
// one at a time, each calling the next if there is more to do, and the one that
// worked last comes first: so short work is done by few, whose memory is still
// in the processor's cache.
type crew struct {
	mu      sync.Mutex
	todo    queue[func()]
	idle    []chan struct{}
	coming  bool // one was called and has not come yet
	closed  bool
	resting sync.WaitGroup // the idle ones
}

// run has f run on a goroutine of the crew, soon.
func (c *crew) run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.todo.push(f)
	c.call()
}

// call calls a goroutine if there is something to do. Locked.
func (c *crew) call() {
	if c.coming || c.todo.size() == 0 {
		return
	}
	c.coming = true
	n := len(c.idle)
	if n == 0 {
		go c.work()
		return
	}
	c.idle[n-1] <- struct{}{} // it is waiting: there is room
	c.idle = c.idle[:n-1]
}

// work is what a goroutine does until it is not needed any more.
func (c *crew) work() {
	called := make(chan struct{}, 1)
	for came := true; came; came = c.rest(called) {
		c.came()
		for f := c.next(); f != nil; f = c.next() {
			f()
		}
	}
}

func (c *crew) came() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coming = false
}

// next is what to do next, nil if there is nothing.
func (c *crew) next() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.todo.size() == 0 {
		return nil
	}
	f := c.todo.pop()
	c.call()
	return f
}

// rest waits until the goroutine is called again; false if it is not needed.
func (c *crew) rest(called chan struct{}) bool {
	c.mu.Lock()
	if c.closed || len(c.idle) >= keepIdle {
		c.mu.Unlock()
		return false
	}
	c.idle = append(c.idle, called)
	c.resting.Add(1)
	c.mu.Unlock()
	defer c.resting.Done()
	_, came := <-called
	return came
}

// close ends the idle goroutines, and lets the others end after what they do.
func (c *crew) close() {
	c.mu.Lock()
	c.closed = true
	for _, called := range c.idle {
		close(called)
	}
	c.idle = nil
	c.mu.Unlock()
	c.resting.Wait()
}

// queue is a first in, first out of what fits in memory.
type queue[T any] struct {
	all  []T
	head int
}

func (q *queue[T]) size() int { return len(q.all) - q.head }

func (q *queue[T]) push(t T) { q.all = append(q.all, t) }

func (q *queue[T]) pop() T {
	var none T
	t := q.all[q.head]
	q.all[q.head] = none
	q.head++
	if q.head > len(q.all)/2 {
		n := copy(q.all, q.all[q.head:])
		clear(q.all[n:])
		q.all, q.head = q.all[:n], 0
	}
	return t
}

// takeAll empties the queue.
func (q *queue[T]) takeAll() []T {
	rest := append([]T(nil), q.all[q.head:]...)
	*q = queue[T]{}
	return rest
}
