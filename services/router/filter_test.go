package router_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// member registers a member of a group with a filter.
func (f *fixture) member(topic, group, filter string, change func(*protocol.Subscription)) *program {
	f.Helper()
	p := f.program(topic+"::@"+group, func(s *protocol.Subscription) {
		s.Kind, s.Topic, s.Filters = protocol.KindObserve, topic, json.RawMessage(filter)
		if change != nil {
			change(s)
		}
	})
	f.follow(topic, p.record)
	return p
}

// A filter that a later version has written, and this router cannot read, has
// nothing left out that it may want, and takes nothing; others of its group go
// on.
func TestAFilterThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	const queue = "news::@g"
	later := f.member("news", "g", `{"input.n":{"$resembles":"five"}}`, nil)
	now := f.member("news", "g", `{"input.n":{"$lt":5}}`, nil)
	for i := range 10 {
		if _, refused := f.publishTopic("news", fmt.Appendf(nil, `{"n":%d}`, i)); refused != nil {
			t.Fatal(refused)
		}
	}
	for i := range 5 {
		m := now.next()
		if want := fmt.Sprintf(`{"n":%d}`, i); string(m.Data) != want {
			t.Errorf("%s, want %s", m.Data, want)
		}
		now.end(m, protocol.Acknowledged)
	}
	f.await("what nobody here can judge to be left", func() bool { return f.queueNamed(queue).Ready == 5 && f.queueNamed(queue).InFlight == 0 })
	later.record.Subscriptions[0].Filters = json.RawMessage(`{"input.n":{"$gt":6}}`)
	f.follow("news", later.record)
	for i := 7; i < 10; i++ {
		m := later.next()
		if want := fmt.Sprintf(`{"n":%d}`, i); string(m.Data) != want {
			t.Errorf("%s, want %s", m.Data, want)
		}
		later.end(m, protocol.Acknowledged)
	}
	f.await("the rest to be left out", func() bool {
		q := f.queueNamed(queue)
		return q.Ready == 0 && q.Counters[protocol.CountFiltered] == 2 && q.Counters[protocol.CountAcknowledged] == 8
	})
	if n := len(now.got) + len(later.got); n > 0 {
		t.Errorf("%d deliveries too many", n)
	}
}

// A backlog that is read from the disk goes to a group whose members want
// different parts of it, take different numbers at once and fail some. The
// lane's next owner learns of them one by one. Each message goes to one who wants
// it, and what none wants to nobody.
func TestABacklogForMembersWithFilters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.router("a", nil)
	f.set(retaining(3_600_000)) // the queue receives for as long as publishing takes
	const queue, messages, kinds = "news::@g", 3000, 6
	f.member("news", "g", `{}`, nil).leaves()
	f.await("the queue to be detached", func() bool { return !f.queueNamed(queue).DetachedAt.IsZero() })
	pad := make([]byte, 2000)
	for i := range pad {
		pad[i] = 'x'
	}
	var publishing sync.WaitGroup
	for w := range 4 {
		publishing.Go(func() {
			for i := w; i < messages; i += 4 {
				m, err := f.nc.RequestWithContext(f.guarded(), protocol.PublishTopicSubject("news"), fmt.Appendf(nil, `{"kind":%d,"n":%d,"pad":%q}`, i%kinds, i, pad))
				if err != nil || protocol.ParseErrorBody(m.Data) != nil {
					f.Errorf("publishing: %v, %s", err, m.Data)
				}
			}
		})
	}
	publishing.Wait()
	f.must(first.Stop(f.guarded()))

	var mu sync.Mutex
	acknowledged := map[int]int{}
	for i, wants := range [][]int{{0, 1}, {1, 2, 3}, {3, 4}} {
		filter, err := json.Marshal(map[string]any{"input.kind": map[string]any{"$in": wants}})
		f.must(err)
		p := f.program(queue, func(s *protocol.Subscription) {
			s.Kind, s.Topic, s.Filters, s.Concurrency, s.MaxRetries = protocol.KindObserve, "news", filter, 1+10*i, 100
		})
		random := rand.New(rand.NewPCG(uint64(i), 1))
		p.handleAll(func(m *nats.Msg) protocol.Outcome {
			var body struct {
				Kind int `json:"kind"`
				N    int `json:"n"`
			}
			f.check(json.Unmarshal(m.Data, &body))
			if body.Kind != wants[0] && body.Kind != wants[1] && body.Kind != wants[len(wants)-1] {
				f.Errorf("the member that wants %v has the kind %d", wants, body.Kind)
			}
			if random.IntN(10) == 0 {
				return protocol.Failed
			}
			mu.Lock()
			defer mu.Unlock()
			acknowledged[body.N]++
			return protocol.Acknowledged
		})
	}
	f.router("b", nil)
	var q protocol.QueueInfo
	f.await("the backlog to be worked off", func() bool {
		q = f.queueNamed(queue)
		return q.Consumers == 3 && q.Ready+q.InFlight == 0
	})
	mu.Lock()
	defer mu.Unlock()
	for i := range messages {
		if i%kinds == kinds-1 && acknowledged[i] != 0 || acknowledged[i] > 1 {
			t.Errorf("message %d was acknowledged %d times", i, acknowledged[i])
		}
	}
	retried := len(f.taken("retry"))
	if len(acknowledged)+retried != messages/kinds*(kinds-1) || q.Counters[protocol.CountFiltered] != messages/kinds || q.Counters[protocol.CountRetried] != uint64(retried) {
		t.Errorf("%d acknowledged, %d to be tried again, %+v", len(acknowledged), retried, q)
	}
}
