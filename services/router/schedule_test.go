package router_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// In a queue that keeps order what was put off takes the way of those put off before
// it, also when it is due by the time it is committed: it would pass them.
func TestWhatIsDueAtOncePassesNoneThatWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	const messages = 20
	p := f.program(observerOfNews, func(s *protocol.Subscription) {
		s.Kind, s.Topic, s.Type, s.DelayMs = protocol.KindObserve, "news", protocol.TypeFIFO, 1
	})
	f.follow("news", p.record)
	p.handleAll(func(*nats.Msg) protocol.Outcome { return protocol.Acknowledged })
	f.await("the way to be known", func() bool {
		f.listeners("news", "x")
		return len(f.taken("retry")) > 0
	})
	f.await("what was before to be handled", func() bool {
		q := f.queueNamed(observerOfNews)
		return q.Ready+q.InFlight+q.Moving == 0
	})
	away, before := len(f.taken("retry")), f.queueNamed(observerOfNews).Counters[protocol.CountDelivered]
	for range messages {
		f.listeners("news", "x")
	}
	after := before
	f.await("all to be sent away", func() bool {
		after = f.queueNamed(observerOfNews).Counters[protocol.CountDelivered]
		return len(f.taken("retry"))-away+int(after-before) >= messages
	})
	if after != before {
		t.Errorf("%d of %d were delivered at once", after-before, messages)
	}
}
