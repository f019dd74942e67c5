package client

import "sync"

// pool runs jobs in order, at most limit at once, on a crew's goroutines. A job
// that is overdue goes on but no longer counts, so that handlers that ignore
// their deadline do not keep the others out.
type pool[J any] struct {
	crew *crew
	run  func(J)

	mu     sync.Mutex
	queue  queue[J] // not begun
	limit  int
	busy   int  // jobs that count
	alive  int  // goroutines at work, or called
	coming bool // one of them is on its way to a job
	closed bool
	ended  chan struct{} // closed and without goroutines
}

func newPool[J any](c *crew, limit int, run func(J)) *pool[J] {
	return &pool[J]{crew: c, run: run, limit: limit, ended: make(chan struct{})}
}

// submit takes a job; false after close.
func (p *pool[J]) submit(j J) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.queue.push(j)
	p.wake()
	return true
}

// wake calls a goroutine if there is something that may run. One at a time: it
// calls the next when it has a job, and short jobs are done by few. Locked.
func (p *pool[J]) wake() {
	if p.coming || p.queue.size() == 0 || p.busy >= p.limit {
		return
	}
	p.coming = true
	p.alive++
	p.crew.run(p.work)
}

// work runs jobs as long as there are some.
func (p *pool[J]) work() {
	defer p.leave()
	p.arrived()
	for {
		j, ok := p.next()
		if !ok {
			return
		}
		p.run(j)
	}
}

// arrived says that the goroutine that was called looks at the queue itself
// now.
func (p *pool[J]) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming = false
}

// next is the next job; false if there is none, or none that may run.
func (p *pool[J]) next() (j J, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.size() == 0 || p.busy >= p.limit {
		return j, false
	}
	p.busy++
	j = p.queue.pop()
	p.wake()
	return j, true
}

// uncount says that a running job no longer counts: it is done, or overdue.
func (p *pool[J]) uncount(overdue bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if overdue {
		p.wake()
	}
}

// leave is when a goroutine goes, also when a job has ended it (runtime.Goexit).
func (p *pool[J]) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive--
	p.wake()
	p.endIfEmpty()
}

func (p *pool[J]) endIfEmpty() {
	if p.closed && p.alive == 0 {
		close(p.ended)
	}
}

// takeBack returns what has not begun, which then never begins.
func (p *pool[J]) takeBack() []J {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.takeAll()
}

// close takes no more jobs; ended is closed when those that were taken are done.
func (p *pool[J]) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.endIfEmpty()
}
