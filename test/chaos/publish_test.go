package chaos_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// Publish in a loop, kill -9, count: all that was answered is there, and it is
// what was published.
func TestKillLosesNoAnsweredPublish(t *testing.T) {
	t.Parallel()
	const kills = 3
	m := harness.Start(t)
	c := m.Connect()
	answered, tried := &sync.Map{}, 0 // message id: data
	for range kills {
		tried += publishUntilKilled(t, m, c, answered)
		m.Restart()
	}
	stored := m.Queue("count", "q").Ready
	n := 0
	answered.Range(func(any, any) bool { n++; return true })
	t.Logf("%d tried, %d answered, %d stored", tried, n, stored)
	if stored < int64(n) || stored > int64(tried) || n == 0 {
		t.Errorf("%d stored, %d answered, %d tried", stored, n, tried)
	}
	handleAll(t, m, c, stored, answered)
}

// publishUntilKilled publishes as fast as it can and kills the mesh meanwhile;
// it returns how many publishes were tried.
func publishUntilKilled(t *testing.T, m *harness.Mesh, c *client.Client, answered *sync.Map) (tried int) {
	t.Helper()
	p, err := c.NewPublisher()
	if err != nil {
		t.Fatal(err)
	}
	ctx, killed := context.WithCancel(t.Context())
	defer killed()
	var got atomic.Int64
	for ctx.Err() == nil {
		data := strconv.Itoa(tried)
		err := p.PublishFunc(ctx, client.Message{To: client.Queue("count", "q"), Data: []byte(data)}, func(r *client.Receipt, err error) {
			if err != nil {
				return // perhaps it is stored
			}
			answered.Store(r.MessageID, data)
			if got.Add(1) == 2000 {
				go func() { m.Kill(); killed() }()
			}
		})
		if err == nil {
			tried++
		}
	}
	p.Close(t.Context())
	return tried
}

// handleAll handles what is stored and checks it against what was answered.
func handleAll(t *testing.T, m *harness.Mesh, c *client.Client, stored int64, answered *sync.Map) {
	t.Helper()
	var handled atomic.Int64
	_, err := c.Work(t.Context(), "count", "q", func(_ context.Context, d *client.Delivery) error {
		handled.Add(1)
		if data, was := answered.LoadAndDelete(d.ID); was && data != string(d.Data) {
			t.Errorf("%s has %q, published was %q", d.ID, d.Data, data)
		}
		return nil
	}, client.Concurrency(200))
	if err != nil {
		t.Fatal(err)
	}
	m.AwaitRest("count", harness.Guard)
	if handled.Load() != stored {
		t.Errorf("%d stored, %d handled", stored, handled.Load())
	}
	answered.Range(func(id, _ any) bool { t.Errorf("%v was answered and never came", id); return true })
}
