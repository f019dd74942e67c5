package router

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

func testConsumer(n int) *consumer {
	return newConsumer(newQueue("q", &lane{}), &worker{id: "w"}, time.Time{}, protocol.Subscription{ID: "s", Concurrency: n})
}

func TestConsumerRests(t *testing.T) {
	c := testConsumer(10)
	now := int64(0)
	if !c.free(now) {
		t.Fatal("a new consumer takes nothing")
	}
	var rests []int64
	for range 10 {
		c.rest(now)
		if c.free(now) {
			t.Fatal("it takes a delivery while it rests")
		}
		rests = append(rests, c.quietUntil-now)
		now = c.quietUntil
		if !c.free(now) {
			t.Fatal("it is not tried again")
		}
		c.inflight = 1
		if c.free(now) {
			t.Fatal("it gets a second delivery before it showed that it is there")
		}
		c.inflight = 0
	}
	for i, r := range rests {
		if r > int64(restMax) || i > 0 && r < rests[i-1] {
			t.Fatalf("the rests are %v", rests)
		}
	}
	c.inflight = 1
	c.proven()
	if !c.free(now) || c.bounces != 0 {
		t.Error("it is not trusted again")
	}
}

func TestOneBurstIsOneRest(t *testing.T) {
	c := testConsumer(10)
	for range 10 {
		c.rest(5)
	}
	if c.bounces != 1 {
		t.Errorf("%d rests for deliveries that came back together", c.bounces)
	}
}

func TestQueuePolicyIsTheNewest(t *testing.T) {
	q := newQueue("q", &lane{})
	old := newConsumer(q, &worker{}, time.Unix(1, 0), protocol.Subscription{ID: "1", MaxRetries: 1, BackoffMs: 10})
	recent := newConsumer(q, &worker{}, time.Unix(2, 0), protocol.Subscription{ID: "2", MaxRetries: 2, BackoffMs: 20})
	q.attach(recent)
	q.attach(old)
	if q.policy.maxRetries != 2 {
		t.Errorf("the policy is %+v", q.policy)
	}
	q.detach(recent)
	if q.policy.maxRetries != 2 {
		t.Errorf("the policy went with its consumer: %+v", q.policy)
	}
}

func TestPickTakesTurns(t *testing.T) {
	q := newQueue("q", &lane{})
	var cs []*consumer
	for range 3 {
		c := testConsumer(2)
		c.q = q
		q.attach(c)
		cs = append(cs, c)
	}
	cs[1].Draining = true
	for range 4 {
		c := q.pick(0)
		if c == nil || c == cs[1] {
			t.Fatal("the wrong consumer's turn")
		}
		c.inflight++
	}
	if cs[0].inflight != 2 || cs[2].inflight != 2 || q.pick(0) != nil {
		t.Errorf("%d and %d in flight", cs[0].inflight, cs[2].inflight)
	}
	if q.window() != 4 {
		t.Errorf("window %d", q.window())
	}
}
