//go:build !no_redis

package redis

import (
	"log/slog"
	"sync"
	"time"
)

// drops tells of messages that were dropped: of the first at once, and after a while of
// how many more there were.
type drops struct {
	log *slog.Logger

	mu    sync.Mutex
	since time.Time
	more  int
	queue string // of the last
}

const dropsEvery = 10 * time.Second

func (d *drops) told(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.more, d.queue = d.more+1, queue
	d.tell(dropsEvery)
}

// rest tells of those that nobody was told of for so long.
func (d *drops) rest(unsaid time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.more > 0 {
		d.tell(unsaid)
	}
}

func (d *drops) tell(unsaid time.Duration) {
	if time.Since(d.since) < unsaid {
		return
	}
	d.log.Warn("messages were dropped: Redis keeps none for a subscriber that takes none, or takes them too slowly", "queue", d.queue, "messages", d.more)
	d.since, d.more = time.Now(), 0
}
