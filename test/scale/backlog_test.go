package scale_test

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// What waits for a worker takes little memory, before one comes and while it
// works the backlog off; each message comes once.
func TestBacklogWaits(t *testing.T) {
	alone(t)
	const size = 128
	n := atLarge(t, 1_000_000, 20_000)
	m := harness.Start(t)
	c := m.Connect()
	p := startPublishing(t, c, size)
	publishing := timed(func() {
		for i := range n {
			p.publish(client.Queue("e", "r"), i)
		}
		p.finish()
	})
	waiting := m.Process().Memory()
	b := newBook(t, n)
	working := timed(func() {
		if _, err := c.Work(t.Context(), "e", "r", b.handle, client.Concurrency(256)); err != nil {
			t.Fatal(err)
		}
		b.await(n, 5*time.Minute)
	})
	harness.Await(t, "all are settled", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == uint64(n) })
	b.once(all)
	peak := m.Process().Memory().Peak
	figuref(t, "%d messages of %d B: %d MiB while they waited, %d MiB at most; published in %v, handled in %v",
		n, size, waiting.Now/mebibyte, peak/mebibyte, publishing, working)
	most(t, "memory", peak, 512*mebibyte)
}
