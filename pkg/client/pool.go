package client

import "sync"

// keepIdle is how many goroutines of a pool wait for the next job; more than
// that end.
const keepIdle = 256

// pool runs jobs in order on goroutines it reuses, at most limit at once. A job
// that is overdue goes on but no longer counts, so that handlers that ignore
// their deadline do not keep the others out.
type pool[J any] struct {
	begin func() (run func(J), end func()) // of each goroutine

	mu     sync.Mutex
	awake  *sync.Cond // one Signal for each goroutine taken off idle
	queue  []J        // not begun, from head on
	head   int
	limit  int
	busy   int  // jobs that count
	idle   int  // goroutines that wait for a job
	alive  int  // goroutines
	coming bool // one of them is on its way to a job
	closed bool
	ended  chan struct{} // closed and without goroutines
}

func newPool[J any](limit int, begin func() (run func(J), end func())) *pool[J] {
	p := &pool[J]{begin: begin, limit: limit, ended: make(chan struct{})}
	p.awake = sync.NewCond(&p.mu)
	return p
}

// submit takes a job; false after close.
func (p *pool[J]) submit(j J) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.queue = append(p.queue, j)
	p.wake()
	return true
}

// wake lets a goroutine look at the queue if it may run something. One at a
// time: it wakes the next when it has a job, and short jobs are done by few.
// Locked.
func (p *pool[J]) wake() {
	if p.coming || p.waiting() == 0 || p.busy >= p.limit {
		return
	}
	p.coming = true
	if p.idle > 0 {
		p.idle--
		p.awake.Signal()
		return
	}
	p.alive++
	go p.loop()
}

func (p *pool[J]) waiting() int { return len(p.queue) - p.head }

func (p *pool[J]) loop() {
	defer p.leave()
	run, end := p.begin()
	defer end()
	p.arrived()
	for {
		j, ok := p.next()
		if !ok {
			return
		}
		run(j)
	}
}

// arrived says that a goroutine that was woken looks at the queue itself now.
func (p *pool[J]) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming = false
}

// next is the next job, when there is one and it may run; false ends the
// goroutine.
func (p *pool[J]) next() (j J, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.waiting() > 0 && p.busy < p.limit {
			p.busy++
			j = p.pop()
			p.wake()
			return j, true
		}
		if p.closed || p.idle >= keepIdle {
			return j, false
		}
		p.idle++
		p.awake.Wait()
		p.coming = false
	}
}

func (p *pool[J]) pop() J {
	var none J
	j := p.queue[p.head]
	p.queue[p.head] = none
	p.head++
	if p.head > len(p.queue)/2 {
		n := copy(p.queue, p.queue[p.head:])
		clear(p.queue[n:])
		p.queue, p.head = p.queue[:n], 0
	}
	return j
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

// leave is a goroutine's end, also when a job ended it (runtime.Goexit).
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
	back := append([]J(nil), p.queue[p.head:]...)
	clear(p.queue)
	p.queue, p.head = nil, 0
	return back
}

// close takes no more jobs and ends the goroutines as they become idle; ended
// is closed when all have.
func (p *pool[J]) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.idle = 0
	p.awake.Broadcast()
	p.endIfEmpty()
}
