//go:build !no_redis

package redis

import (
	"log/slog"
	"sync"
	"time"
)

// drops tells of messages that were dropped: of the first, and of how many more
// there were after a while.
type drops struct {
	log *slog.Logger

	mu    sync.Mutex
	since time.Time
	more  int
}

const dropsEvery = 10 * time.Second

func (d *drops) told(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.more++
	if time.Since(d.since) < dropsEvery {
		return
	}
	d.log.Warn("messages were dropped: Redis keeps none for a subscriber that takes none, or takes them too slowly", "queue", queue, "messages", d.more)
	d.since, d.more = time.Now(), 0
}
