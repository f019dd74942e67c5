package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// crowd observes one topic, and notes what each queue's observers have handled.
type crowd struct {
	t     *testing.T
	topic string

	mu      sync.Mutex
	handled map[string]map[string]int // by queue and message id: how often
	members map[string]int            // deliveries by member
}

func newCrowd(t *testing.T, topic string) *crowd {
	return &crowd{t: t, topic: topic, handled: map[string]map[string]int{}, members: map[string]int{}}
}

// member observes as one of a queue's, under an id or in a group.
func (c *crowd) member(cl *client.Client, queue, name string, opts ...client.WorkOption) *client.Worker {
	c.t.Helper()
	w, err := cl.Observe(c.t.Context(), c.topic, c.noting(queue, name), append(opts, client.Name(name), client.Concurrency(4))...)
	if err != nil {
		c.t.Fatal(err)
	}
	return w
}

// listener listens, with a queue of its own.
func (c *crowd) listener(cl *client.Client, name string) {
	c.t.Helper()
	if _, err := cl.Listen(c.t.Context(), c.topic, c.noting(name, name), client.Name(name), client.Concurrency(4)); err != nil {
		c.t.Fatal(err)
	}
}

// noting is the handler of a queue's member.
func (c *crowd) noting(queue, name string) client.Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handled[queue] == nil {
		c.handled[queue] = map[string]int{}
	}
	return func(_ context.Context, d *client.Delivery) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handled[queue][d.ID]++
		c.members[name]++
		return nil
	}
}

// total is how many deliveries have been handled.
func (c *crowd) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, messages := range c.handled {
		for _, times := range messages {
			n += times
		}
	}
	return n
}

// check holds what each queue's observers have handled against what was
// answered: each message once. What was stored without an answer is either in
// all queues or in none.
func (c *crowd) check(answered map[string]bool) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	everywhere := map[string]int{}
	for queue, messages := range c.handled {
		for id := range answered {
			if messages[id] == 0 {
				c.t.Errorf("%s has missed message %s", queue, id)
			}
		}
		for id, times := range messages {
			everywhere[id]++
			if times != 1 {
				c.t.Errorf("%s has handled message %s %d times", queue, id, times)
			}
		}
	}
	for id, queues := range everywhere {
		if queues != len(c.handled) {
			c.t.Errorf("message %s is in %d of %d queues", id, queues, len(c.handled))
		}
	}
}

// publishing publishes to a topic until it is stopped, and returns the ids of
// what was answered.
func publishing(t *testing.T, m *harness.Mesh, topic string, publishers int) (stop func() map[string]bool, count func() int64) {
	t.Helper()
	cl := m.Connect()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var answered sync.Map
	var jobs, n atomic.Int64
	for range publishers {
		running.Go(func() {
			for ctx.Err() == nil {
				job := strconv.FormatInt(jobs.Add(1), 10)
				for ctx.Err() == nil {
					receipt, err := cl.Publish(ctx, client.Topic(topic), []byte(job), client.DedupID(job))
					if err == nil {
						answered.Store(receipt.MessageID, true)
						n.Add(1)
						break
					}
					pause(ctx, patience)
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return func() map[string]bool {
		cancel()
		running.Wait()
		ids := map[string]bool{}
		answered.Range(func(id, _ any) bool { ids[id.(string)] = true; return true })
		return ids
	}, n.Load
}

// Two hundred observers of one topic, half of them in groups of five, come and
// go under load: each queue handles each message once, whoever was there, and
// who stays has its share.
func TestObserversComeAndGo(t *testing.T) {
	t.Parallel()
	const groups, size, singles, churners, rounds, messages = 20, 5, 100, 4, 8, 400
	m := harness.Start(t)
	c := newCrowd(t, "orders.created")
	clients := make([]*client.Client, 10)
	for i := range clients {
		clients[i] = m.Connect()
	}
	join := func(i int, name string) func() *client.Worker {
		cl := clients[i%len(clients)]
		if i < groups*size {
			group := fmt.Sprint("g", i/size)
			return func() *client.Worker { return c.member(cl, "@"+group, name, client.Group(group)) }
		}
		return func() *client.Worker { return c.member(cl, name, name, client.ID(name)) }
	}
	workers := make([]*client.Worker, groups*size+singles)
	var joining sync.WaitGroup
	for i := range workers {
		joining.Go(func() { workers[i] = join(i, fmt.Sprint("o", i))() })
	}
	joining.Wait()
	stop, count := publishing(t, m, c.topic, 4)
	var churning sync.WaitGroup
	for churner := range churners {
		churning.Go(func() {
			for range rounds { // of each group the first two stay
				i := rand.IntN(len(workers)/churners)*churners + churner
				if i < groups*size && i%size < 2 {
					continue
				}
				if err := workers[i].Dispose(t.Context()); err != nil {
					t.Errorf("disposing: %v", err)
				}
				pause(t.Context(), time.Duration(rand.IntN(50))*time.Millisecond)
				workers[i] = join(i, fmt.Sprint("o", i))()
			}
		})
	}
	churning.Wait()
	harness.Await(t, "the messages to be published", func() bool { return count() >= messages })
	answered := stop()
	harness.Await(t, "every copy to be handled", func() bool { return c.total() >= len(answered)*(groups+singles) })
	m.AwaitRest("", harness.Guard)
	c.check(answered)
	for i := range groups * size {
		if name := fmt.Sprint("o", i); i%size < 2 && c.members[name] < len(answered)/(4*size) {
			t.Errorf("%s of group g%d has starved: %d of %d messages", name, i/size, c.members[name], len(answered))
		}
	}
	t.Logf("%d messages, %d deliveries", len(answered), c.total())
}

// kill -9 of the mesh while it fans out: each queue has each answered message,
// once, as the observers outlive the mesh.
func TestKilledMeshFansOutOnce(t *testing.T) {
	t.Parallel()
	const observers, kills = 30, 4
	m := harness.Start(t)
	c := newCrowd(t, "news")
	cl := m.Connect()
	for i := range observers {
		name := fmt.Sprint("o", i)
		if i%3 == 0 {
			c.member(cl, "@"+name, name, client.Group(name))
			c.member(cl, "@"+name, name+"-too", client.Group(name))
			continue
		}
		c.member(cl, name, name, client.ID(name))
	}
	stop, _ := publishing(t, m, c.topic, 8)
	for range kills {
		target := c.total() + 1 + rand.IntN(3000)
		harness.Await(t, "more deliveries", func() bool { return c.total() >= target })
		m.Kill()
		m.Restart()
	}
	target := c.total() + 1000
	harness.Await(t, "deliveries after the last restart", func() bool { return c.total() >= target })
	answered := stop()
	harness.Await(t, "every copy to be handled", func() bool { return c.total() >= len(answered)*observers })
	m.AwaitRest("", harness.Guard)
	c.check(answered)
	t.Logf("%d messages answered, %d deliveries", len(answered), c.total())
}

// kill -9 of the mesh, and of listeners with it: those that live on are bound as
// before, and miss and repeat nothing that was answered; of the killed ones
// neither binding nor queue is left.
func TestKilledMeshKeepsListenersBindings(t *testing.T) {
	t.Parallel()
	const listeners, victims, kills = 10, 3, 3
	m := harness.Start(t)
	c := newCrowd(t, "news")
	cl := m.Connect()
	for i := range listeners {
		c.listener(cl, fmt.Sprint("l", i))
	}
	stop, _ := publishing(t, m, c.topic, 8)
	for range kills {
		var dying [victims]*harness.Worker
		for i := range dying {
			dying[i] = harness.StartWorker(t, harness.WorkerSpec{URL: m.URL, Topic: c.topic, Listen: true})
			dying[i].Delivery() // it is bound
		}
		target := c.total() + 1 + rand.IntN(1000)
		harness.Await(t, "more deliveries", func() bool { return c.total() >= target })
		m.Kill()
		for _, w := range dying {
			w.Kill()
		}
		m.Restart()
	}
	target := c.total() + 1000
	harness.Await(t, "deliveries after the last restart", func() bool { return c.total() >= target })
	answered := stop()
	harness.Await(t, "every copy to be handled", func() bool { return c.total() >= len(answered)*listeners })
	harness.Await(t, "the killed ones to be unbound", func() bool {
		r, err := cl.Publish(t.Context(), client.Topic(c.topic), nil)
		if err != nil {
			t.Fatal(err)
		}
		answered[r.MessageID] = true
		return r.Listeners == listeners
	})
	harness.Await(t, "their queues to be forgotten", func() bool { return len(m.Queues("")) == listeners })
	m.AwaitRest("", harness.Guard)
	c.check(answered)
}

// A killed member's messages go to the others of its group, with nothing spent.
func TestKilledMemberOfAGroup(t *testing.T) {
	t.Parallel()
	const held = 10
	m := harness.Start(t)
	spec := harness.WorkerSpec{URL: m.URL, Topic: "orders", Group: "g", Concurrency: held}
	victim := harness.StartWorker(t, spec)
	cl := m.Connect()
	ids := map[string]bool{}
	for range held {
		receipt, err := cl.Publish(t.Context(), client.Topic("orders"), []byte(harness.Hold))
		if err != nil || receipt.Listeners != 1 {
			t.Fatalf("%+v, %v", receipt, err)
		}
		ids[receipt.MessageID] = true
	}
	for range held {
		victim.Delivery()
	}
	var mu sync.Mutex
	_, err := cl.Observe(t.Context(), "orders", func(_ context.Context, d *client.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if !ids[d.ID] || d.Attempt != 1 {
			t.Errorf("%s came at attempt %d", d.ID, d.Attempt)
		}
		delete(ids, d.ID)
		return nil
	}, client.Group("g"))
	if err != nil {
		t.Fatal(err)
	}
	victim.Kill()
	harness.Await(t, "the others to handle all", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ids) == 0
	})
	m.AwaitRest("", harness.Guard)
	if q := m.QueueNamed("orders::@g"); q.Counters["failed"] != 0 || q.Counters["acknowledged"] != held || q.Dead != 0 {
		t.Errorf("%+v", q)
	}
}
