package scale_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// step is by how much a log may outgrow twice what is live: what the janitor
// leaves, and what is written until it has looked and purged.
const step = (64 + 192) * mebibyte

// An observer that hangs while others take what is published costs the disk what
// it has still to get, once for all observers, and no more than twice that and a
// step. When it goes on it gets all, and then the log is short again.
func TestStuckObserver(t *testing.T) {
	alone(t)
	const size = 16 << 10
	n := atLarge(t, 1<<30/size, 16*mebibyte/size)
	m := harness.Start(t)
	c := m.Connect()
	released := make(chan struct{})
	slow := newBook(t, n)
	observe(t, c, "slow", func(ctx context.Context, d *client.Delivery) error {
		select {
		case <-released:
			return slow.handle(ctx, d)
		case <-ctx.Done():
			return ctx.Err()
		}
	}, client.Timeout(longest))
	quick := [2]*book{newBook(t, n), newBook(t, n)}
	observe(t, c, "quick-0", quick[0].handle)
	observe(t, c, "quick-1", quick[1].handle)
	p := startPublishing(t, m.Connect(), size)
	publishing := timed(func() {
		for i := range n {
			p.publish(client.Topic("news"), i)
		}
		p.finish()
		for _, b := range quick {
			b.await(n, harness.Guard)
		}
	})
	full := logSize(t, m)
	most(t, "the log while one hangs", full, 2*int64(n*size)+step)
	close(released)
	waking := timed(func() { slow.await(n, 5*time.Minute) })
	for _, b := range append(quick[:], slow) {
		b.once(all)
	}
	var after int64
	harness.Await(t, "the log is short again", func() bool { after = logSize(t, m); return after <= step })
	memory := m.Process().Memory()
	figuref(t, "%d MiB past an observer that hangs: log %d MiB, %d when it has caught up; memory %d MiB (%d at most); published and handled by two in %v, caught up in %v",
		n*size/mebibyte, full/mebibyte, after/mebibyte, memory.Now/mebibyte, memory.Peak/mebibyte, publishing, waking)
}

func observe(t *testing.T, c *client.Client, id string, h client.Handler, opts ...client.WorkOption) {
	t.Helper()
	if _, err := c.Observe(t.Context(), "news", h, append(opts, client.ID(id))...); err != nil {
		t.Fatal(err)
	}
}

// logSize is what the mesh's data takes on the disk.
func logSize(t *testing.T, m *harness.Mesh) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(m.Data, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return notThere(err)
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return notThere(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// notThere makes nothing of a file that is gone meanwhile.
func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
