package router_test

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

const observerOfNews = "news::observer:x"

func retaining(ms int64) func(*protocol.Settings) {
	return func(s *protocol.Settings) { s.SubscriberRetentionMs = ms }
}

func (f *fixture) listeners(topic, text string) int {
	f.Helper()
	ack, refused := f.publishTopic(topic, []byte(text))
	if refused != nil {
		f.Fatal(refused)
	}
	return ack.Listeners
}

func (f *fixture) observer() *program {
	f.Helper()
	return f.subscriber("news", observerOfNews, protocol.KindObserve)
}

// handles takes the deliveries of these texts, in any order, and no other.
func (p *program) handles(texts ...string) {
	p.f.Helper()
	wanted := map[string]bool{}
	for _, text := range texts {
		wanted[text] = true
	}
	for range texts {
		m := p.next()
		if !wanted[string(m.Data)] {
			p.f.Errorf("got %q", m.Data)
		}
		delete(wanted, string(m.Data))
		p.end(m, protocol.Acknowledged)
	}
}

// A queue that nobody observes any more receives its topic for a while, then it
// keeps what it holds; who observes it next has that, and receives again.
func TestRetention(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.set(retaining(8000)) // there is something to look at before it ends
	f.observer().leaves()
	f.await("the observer to be gone", func() bool { return !f.queueNamed(observerOfNews).DetachedAt.IsZero() })
	q := f.queueNamed(observerOfNews)
	if kept := q.ReceivesUntil.Sub(q.DetachedAt); !q.Receiving || kept != 8*time.Second {
		t.Errorf("it receives for %v: %+v", kept, q)
	}
	if n := f.listeners("news", "inside"); n != 1 {
		t.Errorf("inside the retention %d have it", n)
	}
	f.await("the retention to end", func() bool { return !f.queueNamed(observerOfNews).Receiving })
	if late := time.Until(q.ReceivesUntil); late > 0 {
		t.Errorf("it has ended %v early", late)
	}
	if n := f.listeners("news", "outside"); n != 0 {
		t.Errorf("after the retention %d have it", n)
	}
	if q := f.queueNamed(observerOfNews); q.Ready != 1 || q.DetachedAt.IsZero() || q.Consumers != 0 {
		t.Errorf("an orphan: %+v", q)
	}
	again := f.observer()
	if n := f.listeners("news", "again"); n != 1 {
		t.Errorf("observed again, %d have it", n)
	}
	again.handles("inside", "again")
	if q := f.queueNamed(observerOfNews); !q.Receiving || !q.DetachedAt.IsZero() {
		t.Errorf("observed again: %+v", q)
	}
}

// Without a retention it ends with the observer. A change is for those who leave
// after it.
func TestRetentionOfNothingAndItsChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.set(retaining(3_600_000))
	f.observer().leaves()
	f.await("the observer to be gone", func() bool { return !f.queueNamed(observerOfNews).DetachedAt.IsZero() })
	f.set(retaining(0))
	other := f.subscriber("news", "news::@g", protocol.KindObserve)
	other.leaves()
	f.await("the group to be gone", func() bool { return !f.queueNamed("news::@g").DetachedAt.IsZero() })
	if q := f.queueNamed("news::@g"); q.Receiving {
		t.Errorf("without a retention: %+v", q)
	}
	if n := f.listeners("news", "x"); n != 1 {
		t.Errorf("%d have it", n)
	}
	if q := f.queueNamed(observerOfNews); !q.Receiving || q.ReceivesUntil.Sub(q.DetachedAt) != time.Hour {
		t.Errorf("of before the change: %+v", q)
	}
}

// A retention goes on over a restart, and ends after it; what has ended stays
// so.
func TestRetentionOutlivesItsRouter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.router("a", nil)
	f.set(retaining(1000))
	ended := f.subscriber("news", "news::@ended", protocol.KindObserve)
	ended.leaves()
	f.await("the retention to end", func() bool {
		q := f.queueNamed("news::@ended")
		return q.Queue != "" && !q.Receiving
	})
	f.set(retaining(15000)) // a router ends and another starts in that time
	f.observer().leaves()
	f.await("the observer to be gone", func() bool { return !f.queueNamed(observerOfNews).DetachedAt.IsZero() })
	until := f.queueNamed(observerOfNews).ReceivesUntil
	f.must(s.Stop(context.Background()))
	f.router("b", nil)
	if n := f.listeners("news", "x"); n != 1 {
		t.Errorf("after the restart %d have it", n)
	}
	if q := f.queueNamed(observerOfNews); !q.ReceivesUntil.Equal(until) || q.Ready != 1 {
		t.Errorf("after the restart: %+v, before until %v", q, until)
	}
	if q := f.queueNamed("news::@ended"); q.Queue == "" || q.Receiving || q.Ready != 0 {
		t.Errorf("ended before: %+v", q)
	}
	f.await("the retention to end", func() bool { return !f.queueNamed(observerOfNews).Receiving })
	if n := f.listeners("news", "y"); n != 0 {
		t.Errorf("after the retention %d have it", n)
	}
}

// Whoever has not asked for a time limit has the one that is set now.
func TestActivationTimeoutFollowsItsSetting(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.set(func(s *protocol.Settings) { s.Observers.ActivationTimeoutMs = 3_000_000 })
	limited := func(s *protocol.Subscription) {
		s.Kind, s.Topic, s.TimeoutMs, s.TimeoutDefault = protocol.KindObserve, "news", 30000, true
	}
	p := f.program(observerOfNews, limited)
	f.follow("news", p.record)
	own := f.program("news::observer:own", func(s *protocol.Subscription) {
		limited(s)
		s.TimeoutMs, s.TimeoutDefault = 7000, false
	})
	f.follow("news", own.record)
	limit := func(p *program) string {
		f.listeners("news", "x")
		m := p.next()
		p.end(m, protocol.Acknowledged)
		return m.Header.Get(protocol.HeaderTimeout)
	}
	if got := limit(p); got != "3000000" {
		t.Errorf("the limit is %s", got)
	}
	if got := limit(own); got != "7000" {
		t.Errorf("its own limit is %s", got)
	}
	f.set(func(s *protocol.Settings) { s.Observers.ActivationTimeoutMs = 100 })
	f.await("the limit to follow", func() bool {
		f.listeners("news", "x")
		return p.next().Header.Get(protocol.HeaderTimeout) == "100"
	})
	f.await("its time to be up", func() bool { return f.queueNamed(observerOfNews).Counters[protocol.CountFailed] > 0 })
}
