//go:build !no_rabbitmq

package rabbitmq

import (
	"sync"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// longestWay is how long a message whose delay has passed is on its way to its
// queue: RabbitMQ tries it again after three minutes if it could not take it at
// once, as while it starts. The message is in neither queue's count meanwhile.
const longestWay = 200 * time.Second

// away are the copies that are not back yet, of each queue, as far as this owner
// of its lane knows.
type away struct {
	mu     sync.Mutex
	queues map[string]*awayFrom
}

// awayFrom are those of one queue.
type awayFrom struct {
	copies map[remote.Ident]struct{}
	until  time.Time // when all are back, whatever happens on the way
}

// maxAway bounds those of a queue. Of so many some are counted by the broker.
const maxAway = 1 << 16

// add notes one that comes back after a delay.
func (a *away) add(i remote.Ident, delay time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.queues[i.Queue]
	if of == nil {
		of = &awayFrom{copies: make(map[remote.Ident]struct{})}
		if a.queues == nil {
			a.queues = make(map[string]*awayFrom)
		}
		a.queues[i.Queue] = of
	}
	if len(of.copies) < maxAway {
		of.copies[i] = struct{}{}
	}
	if until := time.Now().Add(delay + longestWay); until.After(of.until) {
		of.until = until
	}
}

// back takes note of one that is back, or was taken away while it waited.
func (a *away) back(i remote.Ident) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.queues[i.Queue]
	if of == nil {
		return
	}
	delete(of.copies, i)
	if len(of.copies) == 0 {
		delete(a.queues, i.Queue)
	}
}

func (a *away) count(queue string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.queues[queue]
	if of == nil {
		return 0
	}
	if time.Now().After(of.until) {
		delete(a.queues, queue)
		return 0
	}
	return len(of.copies)
}

// forget is for a queue that is gone, or has another owner.
func (a *away) forget(queue string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.queues, queue)
}
