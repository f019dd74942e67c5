package chaos_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// Messages are scheduled while the mesh is killed again and again: each that was
// answered comes, at its first attempt, none before its time.
func TestKillNeitherLosesNorHurriesASchedule(t *testing.T) {
	t.Parallel()
	const kills = 3
	m := harness.Start(t)
	c := m.Connect()
	var mu sync.Mutex
	due, came := map[string]time.Time{}, map[string]int{} // by what is in them
	_, err := c.Work(t.Context(), "later", "q", func(_ context.Context, d *client.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		came[string(d.Data)]++
		if early := time.Until(due[string(d.Data)]); early > 0 || d.Attempt != 1 {
			t.Errorf("message %s came %v early, at attempt %d", d.Data, early, d.Attempt)
		}
		return nil
	}, client.Concurrency(200))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var publishers sync.WaitGroup
	answered := make(chan string, 1<<20)
	for p := range 8 {
		publishers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name, at := strconv.Itoa(p)+"."+strconv.Itoa(i), time.Now().Add(time.Duration(i*7919%4000)*time.Millisecond)
				mu.Lock()
				due[name] = at
				mu.Unlock()
				if _, err := c.Publish(ctx, client.Queue("later", "q"), []byte(name), client.DeliverAt(at)); err == nil {
					answered <- name
				}
			}
		})
	}
	for range kills {
		n := len(answered)
		harness.Await(t, "some scheduled", func() bool { return len(answered) > n+300 })
		m.Kill()
		m.Restart()
	}
	stop()
	publishers.Wait()
	close(answered)
	m.AwaitRest("later", harness.Guard)
	mu.Lock()
	defer mu.Unlock()
	for name := range answered {
		if came[name] == 0 {
			t.Errorf("message %s was answered and never came", name)
		}
	}
}
