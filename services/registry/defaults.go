package registry

import (
	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// defaults hold for a subscriber that says nothing of its own.
type defaults struct {
	maxRetries, concurrency int
	fifo                    bool // strictly one after the other
}

// defaultsOf are those of a configuration. They hold for queues that outlive
// their subscribers: listeners are the mesh's own.
func defaultsOf(c *protocol.Config) defaults {
	r, _ := config.RabbitMQOf(c.Adapter)
	return defaults{maxRetries: r.MaxAttempts, concurrency: r.PrefetchCount, fifo: r.FIFO()}
}

// complete fills in what the subscription leaves open, and notes what of it is
// the broker's to say: where messages go later may be another's.
func (d defaults) complete(spec *protocol.SubscriptionSpec, sub *protocol.Subscription) {
	if sub.Kind == protocol.KindListen {
		return
	}
	if spec.MaxRetries == 0 {
		sub.MaxRetries, sub.RetriesDefault = d.maxRetries, true
	}
	if spec.Concurrency == nil {
		sub.Concurrency, sub.ConcurrencyDefault = d.concurrency, true
	}
	if d.fifo && spec.Type == "" {
		spec.Type, sub.Serial = protocol.TypeFIFO, sub.GroupField == ""
	}
}
