//go:build !no_rabbitmq

package rabbitmq

import (
	"time"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// longestWay is how long a message whose delay has passed is on its way to its
// queue: RabbitMQ tries it again after three minutes if it could not take it at
// once, as while it starts. The message is in neither queue's count meanwhile.
const longestWay = 200 * time.Second

// away are a place's copies that are not back yet, as far as this owner knows.
type away struct {
	copies map[remote.Ident]struct{}
	until  time.Time // when all are back, whatever happens on the way
}

// maxAway bounds them. Of so many some are counted by the broker.
const maxAway = 1 << 16

// add notes one that comes back after a delay.
func (a *away) add(i remote.Ident, delay time.Duration) {
	if a.copies == nil {
		a.copies = make(map[remote.Ident]struct{})
	}
	if len(a.copies) < maxAway {
		a.copies[i] = struct{}{}
	}
	if until := time.Now().Add(delay + longestWay); until.After(a.until) {
		a.until = until
	}
}

func (a *away) back(i remote.Ident) { delete(a.copies, i) }

func (a *away) count() int {
	if len(a.copies) > 0 && time.Now().After(a.until) {
		a.copies = nil
	}
	return len(a.copies)
}
