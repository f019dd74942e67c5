package client

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const guard = 3 * time.Minute

// counting runs jobs and sees how many run at once.
type counting struct {
	pool    *pool[int]
	now     atomic.Int32
	most    atomic.Int32
	ran     atomic.Int32
	running func(job int)
}

func newCounting(c *crew, limit int, running func(job int)) *counting {
	k := &counting{running: running}
	k.pool = newPool(c, limit, k.run)
	return k
}

func (k *counting) run(job int) {
	defer k.pool.uncount(false)
	defer k.now.Add(-1)
	n := k.now.Add(1)
	for most := k.most.Load(); n > most && !k.most.CompareAndSwap(most, n); most = k.most.Load() {
	}
	k.ran.Add(1)
	k.running(job)
}

func (k *counting) end(t *testing.T) {
	t.Helper()
	k.pool.close()
	select {
	case <-k.pool.ended:
	case <-time.After(guard):
		t.Fatalf("the pool has not ended: %d jobs ran", k.ran.Load())
	}
}

func TestPoolsOfACrewKeepTheirLimits(t *testing.T) {
	const jobs = 2000
	var c crew
	pools := make([]*counting, 8)
	var submitting sync.WaitGroup
	for i := range pools {
		pools[i] = newCounting(&c, i+1, func(job int) {
			if job%97 == 0 {
				runtime.Goexit() // takes the goroutine with it
			}
			runtime.Gosched()
		})
		submitting.Go(func() {
			for job := range jobs {
				if !pools[i].pool.submit(job) {
					t.Error("a job was refused")
				}
			}
		})
	}
	submitting.Wait()
	for i, k := range pools {
		k.end(t)
		if ran, most := k.ran.Load(), int(k.most.Load()); ran != jobs || most > i+1 {
			t.Errorf("pool of %d: %d of %d jobs ran, at most %d at once", i+1, ran, jobs, most)
		}
		if k.pool.submit(0) {
			t.Error("a closed pool took a job")
		}
	}
	c.close()
}

func TestJobsBeginInOrder(t *testing.T) {
	var c crew
	var order []int
	k := newCounting(&c, 1, func(job int) { order = append(order, job) })
	for job := range 1000 {
		k.pool.submit(job)
	}
	k.end(t)
	if !slices.IsSorted(order) || len(order) != 1000 {
		t.Errorf("%d jobs, in order %v", len(order), slices.IsSorted(order))
	}
	c.close()
}

func TestALongJobKeepsNobodyOutOnceItIsOverdue(t *testing.T) {
	var c crew
	release, other := make(chan struct{}), make(chan struct{})
	var p *pool[int]
	p = newPool(&c, 1, func(job int) {
		if job == 1 {
			p.uncount(true)
			<-release
			return
		}
		close(other)
		p.uncount(false)
	})
	p.submit(1)
	p.submit(2)
	select {
	case <-other:
	case <-time.After(guard):
		t.Fatal("the second job does not run")
	}
	close(release)
	p.close()
	<-p.ended
	c.close()
}

func TestACrewIsReusedAndEnds(t *testing.T) {
	var c crew
	for range 100 {
		c.run(func() {})
		c.awaitIdle(t, 1) // the same again
	}
	c.close()
	late := make(chan struct{})
	c.run(func() { close(late) }) // a handler that outlived Close
	<-late
}

func (c *crew) awaitIdle(t *testing.T, want int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(guard); time.Now().Before(deadline); <-tick.C {
		c.mu.Lock()
		n := len(c.idle)
		c.mu.Unlock()
		if n == want {
			return
		}
	}
	t.Fatalf("not %d goroutines are idle", want)
}
