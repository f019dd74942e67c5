package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/test/harness"
)

// grouped is a job of a group, which numbers its jobs.
type grouped struct {
	Group string `json:"group"`
	N     int    `json:"n"`
}

// conductor serves a function of grouped jobs and watches over their order.
type conductor struct {
	t           *testing.T
	concurrency int
	each        int // jobs of a group

	mu      sync.Mutex
	running map[string]bool // groups in somebody's hands
	next    map[string]int  // jobs done, by group
	done    int
}

func (c *conductor) run(_ context.Context, input []byte) ([]byte, error) {
	var job grouped
	if err := json.Unmarshal(input, &job); err != nil {
		c.t.Errorf("a job is %q: %v", input, err)
		return nil, err
	}
	c.begin(job)
	harness.Wait(c.t, time.Duration(rand.IntN(3))*time.Millisecond)
	failed := rand.IntN(10) == 0
	c.end(job, failed)
	if failed {
		return nil, fmt.Errorf("job %d of group %s fails this time", job.N, job.Group)
	}
	return nil, nil
}

func (c *conductor) begin(job grouped) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[job.Group] {
		c.t.Errorf("group %s is in two hands", job.Group)
	}
	c.running[job.Group] = true
	if n := len(c.running); n > c.concurrency {
		c.t.Errorf("%d jobs run at once, more than %d", n, c.concurrency)
	}
	if want := c.next[job.Group]; job.N != want {
		c.t.Errorf("job %d of group %s came when %d was next", job.N, job.Group, want)
	}
}

func (c *conductor) end(job grouped, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, job.Group)
	if failed {
		return
	}
	c.next[job.Group]++
	c.done++
}

// enough waits until that many jobs are done.
func (c *conductor) enough(n int) {
	c.t.Helper()
	harness.Await(c.t, fmt.Sprintf("%d jobs are done", n), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.done >= n
	})
}

// The jobs of a thousand groups keep their order while some fail and one of two
// routers is killed; no group is in two hands, and no more run at once than the
// queue allows.
func TestGroupsOfJobsKeepOrder(t *testing.T) {
	t.Parallel()
	const groups = 1000
	m := harness.StartSeparate(t, map[string]int{"router": 2})
	soak, began := harness.Soak(t), time.Now()
	for round := 0; ; round++ {
		killed := keepsOrder(t, m, fmt.Sprintf("turns-%d", round), groups)
		if t.Failed() || time.Since(began) > soak {
			return
		}
		m.Instance(killed).Start()
		m.AwaitReady()
	}
}

// keepsOrder is one round; it returns which router was killed.
func keepsOrder(t *testing.T, m *harness.Separate, queue string, groups int) (killed string) {
	c := &conductor{t: t, concurrency: 40, each: 3, running: map[string]bool{}, next: map[string]int{}}
	clients := []*client.Client{m.Connect(), m.Connect()}
	config := client.QueueConfig{GroupField: "group", Concurrency: c.concurrency, MaxRetries: 100, Backoff: time.Millisecond}
	if changed, err := clients[0].Define(t.Context(), queue, config); err != nil || !changed {
		t.Fatalf("defining the queue: %v, %v", changed, err)
	}
	for _, one := range clients {
		if _, err := one.Handle(t.Context(), protocol.DefaultNamespace, queue, c.run, client.Concurrency(c.concurrency)); err != nil {
			t.Fatal(err)
		}
	}
	var enqueueing sync.WaitGroup
	enqueueing.Go(func() { enqueueAll(t, clients[1], queue, groups, c.each) })
	c.enough(groups / 4)
	owner := ownerOf(t, m, scope.JobsQueue(queue))
	m.Instance(owner).Kill()
	c.enough(groups)
	enqueueing.Wait()
	c.enough(groups * c.each)
	harness.Await(t, "nothing is left", func() bool {
		q := m.QueueNamed(scope.JobsQueue(queue))
		return q.Ready+q.InFlight+q.Waiting+q.Moving+q.Dead == 0 && q.Counters[protocol.CountAcknowledged] == uint64(groups*c.each)
	})
	return owner
}

// ownerOf is the router that has a queue.
func ownerOf(t *testing.T, m *harness.Separate, queue string) string {
	t.Helper()
	nc, err := nats.Connect(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	pages, err := mesh.Gather[protocol.QueuesPage](t.Context(), nc, protocol.SubjectQueues, protocol.QueuesRequest{Queue: queue}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if len(page.Queues) > 0 {
			return page.Instance
		}
	}
	t.Fatalf("no router has %s", queue)
	return ""
}

// enqueueAll enqueues the jobs of all groups, each anew until it is stored.
func enqueueAll(t *testing.T, c *client.Client, queue string, groups, each int) {
	const atOnce = 50
	turns := make(chan int)
	var working sync.WaitGroup
	for range atOnce {
		working.Go(func() {
			for group := range turns {
				for n := range each {
					enqueueOne(t, c, queue, grouped{Group: fmt.Sprintf("g-%d", group), N: n})
				}
			}
		})
	}
	for group := range groups {
		turns <- group
	}
	close(turns)
	working.Wait()
}

func enqueueOne(t *testing.T, c *client.Client, queue string, job grouped) {
	data, err := json.Marshal(job)
	if err != nil {
		t.Error(err)
		return
	}
	id := fmt.Sprintf("%s-%d", job.Group, job.N)
	harness.Await(t, "a job is stored", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := c.Enqueue(ctx, queue, queue, data, client.DedupID(id))
		if err != nil && protocol.CodeOf(err) != protocol.CodeUnavailable && protocol.CodeOf(err) != protocol.CodeTimeout {
			t.Errorf("enqueueing job %s: %v", id, err)
			return true
		}
		return err == nil
	})
}

// A queue that was defined is there after a kill at once, with the jobs for a
// function that nobody serves. They have cost nothing and nobody was asked for
// them, and all run when somebody comes.
func TestJobsWaitOverAKill(t *testing.T) {
	t.Parallel()
	const n = 10000
	m := harness.Start(t)
	c := m.Connect()
	if _, err := c.Define(t.Context(), "late", client.QueueConfig{Concurrency: 100, MaxRetries: 1}); err != nil {
		t.Fatal(err)
	}
	m.Kill()
	m.Restart()
	jobs := make([]client.Message, n)
	for i := range jobs {
		jobs[i] = client.Message{To: client.Job("late", protocol.DefaultNamespace, "late::run"), Data: fmt.Append(nil, i)}
	}
	enqueued, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	if _, err := c.PublishMany(enqueued, jobs); err != nil {
		t.Fatal(err)
	}
	serve(t, c, "other::run", 1) // another function's jobs go past
	if _, err := c.Enqueue(t.Context(), "late", "other::run", []byte("1")); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the other function's job is done", func() bool {
		return m.QueueNamed(scope.JobsQueue("late")).Counters[protocol.CountAcknowledged] == 1
	})
	m.Kill()
	m.Restart()
	q := m.QueueNamed(scope.JobsQueue("late"))
	if q.Ready != n || q.Counters[protocol.CountDelivered] != 1 {
		t.Errorf("%d jobs wait and %d were delivered, want %d and 1", q.Ready, q.Counters[protocol.CountDelivered], n)
	}
	harness.Await(t, "all stand aside", func() bool {
		q = m.QueueNamed(scope.JobsQueue("late"))
		return len(q.Unserved) == 1 && q.Unserved[0].Jobs == n
	})
	if q.Unserved[0].Looks != 1 {
		t.Errorf("somebody was looked for %d times, want once", q.Unserved[0].Looks)
	}
	serve(t, c, "late::run", n)
	harness.Await(t, "all jobs are done", func() bool {
		return m.QueueNamed(scope.JobsQueue("late")).Counters[protocol.CountAcknowledged] == n+1
	})
	q = m.QueueNamed(scope.JobsQueue("late"))
	if q.Counters[protocol.CountFailed]+q.Counters[protocol.CountVanished]+q.Counters[protocol.CountIncomplete] != 0 {
		t.Errorf("jobs have cost something: %v", q.Counters)
	}
}

// serve serves a function; each of its jobs has the first attempt.
func serve(t *testing.T, c *client.Client, function string, concurrency int) {
	t.Helper()
	_, err := c.Handle(t.Context(), protocol.DefaultNamespace, function, func(ctx context.Context, input []byte) ([]byte, error) {
		if d := client.JobOf(ctx); d == nil || d.Attempt != 1 {
			t.Errorf("job %s is %+v", input, d)
		}
		return nil, nil
	}, client.Concurrency(min(concurrency, 100)))
	if err != nil {
		t.Fatal(err)
	}
}
