package scale_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// An observer that is abandoned costs the disk what was published within its
// retention, and nothing after it; what it holds is given back when it is
// removed.
func TestAbandonedObserver(t *testing.T) {
	alone(t)
	const size = 16 << 10
	n := atLarge(t, 1<<30/size, 16*mebibyte/size)
	m := harness.Start(t)
	c := m.Connect()
	there := newBook(t, n)
	observe(t, c, "there", there.handle)
	past := func(id string, retention int64, holds int64) {
		t.Helper()
		m.Set(protocol.SettingsChange{SubscriberRetentionMs: &retention})
		w, err := c.Observe(t.Context(), "news", there.handle, client.ID(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Dispose(t.Context()); err != nil {
			t.Fatal(err)
		}
		publishing := startPublishing(t, m.Connect(), size)
		before := there.handled.Load()
		for i := range n {
			publishing.publish(client.Topic("news"), i)
		}
		publishing.finish()
		there.await(int(before)+n, 5*time.Minute)
		if info, listed := m.Observer("news::observer:" + id); !listed || info.Ready != holds {
			t.Errorf("%s holds %d, want %d", id, info.Ready, holds)
		}
	}
	const day = 24 * 60 * 60 * 1000
	past("at-once", 0, 0)
	var log int64
	base := func(what string) {
		t.Helper()
		harness.Await(t, what, func() bool { log = logSize(t, m); return log <= step })
	}
	base("the log has its base although one is abandoned")
	past("kept", day, int64(n))
	full := logSize(t, m)
	if removed, err := m.RemoveObserver("news::observer:kept"); err != nil || removed.Discarded != int64(n) {
		t.Fatalf("%+v, %v", removed, err)
	}
	base("the log has its base when what is held was removed")
	figuref(t, "%d MiB past an abandoned observer: log %d MiB while it keeps them, %d when it is removed", n*size/mebibyte, full/mebibyte, log/mebibyte)
}

// Workers with many observers each are restarted one after another under their
// names while their topics are published to: each has its ids back at once, and
// no message is missed.
func TestRollingRestart(t *testing.T) {
	alone(t)
	workers, observers := atLarge(t, 100, 6), atLarge(t, 50, 5)
	m := harness.Start(t)
	n := workers * 5
	books := make([][]*book, workers)
	programs := make([]*client.Client, workers)
	begin := func(i int) {
		c := m.Connect(client.Name(fmt.Sprint("worker-", i)), client.DrainWindow(10*time.Second))
		programs[i] = c
		for j, b := range books[i] {
			name := strconv.Itoa(j)
			if _, err := c.Observe(t.Context(), "topic-"+name, b.handle, client.ID(fmt.Sprint("w", i, "-", j))); err != nil {
				t.Fatal(err)
			}
		}
	}
	starting := timed(func() {
		for i := range workers {
			for range observers {
				books[i] = append(books[i], newBook(t, n))
			}
			begin(i)
		}
	})
	publisher := startPublishing(t, m.Connect(), 128)
	number := 0
	var slowest time.Duration
	rolling := timed(func() {
		for i := range workers {
			slowest = max(slowest, timed(func() {
				ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
				defer cancel()
				if err := programs[i].Close(ctx); err != nil {
					t.Error(err)
				}
				for range n / workers {
					publisher.publish(client.Topic("topic-"+strconv.Itoa(number%observers)), number)
					number++
				}
				begin(i)
			}))
		}
	})
	publisher.finish()
	for _, ofWorker := range books {
		for j, b := range ofWorker {
			expected := func(number int) bool { return number%observers == j }
			want := 0
			for i := range n {
				if expected(i) {
					want++
				}
			}
			b.await(want, harness.Guard)
			b.once(expected)
		}
	}
	figuref(t, "%d workers with %d observers each: started in %v, restarted one after another in %v, one in %v at most", workers, observers, starting, rolling, slowest)
}
