package router_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

const lanes = 4 // of the fixture's routers

// follow brings a worker's record to the lane of a topic, as a registry does.
func (f *fixture) follow(topic string, w protocol.Worker) {
	f.Helper()
	f.tell(w)
	f.mu.Lock()
	w.KVRevision = f.revision
	f.mu.Unlock()
	subject := protocol.SubjectLane + ledger.Name("router", ledger.OfTopic(topic, lanes)) + ".follow"
	f.await("the lane to confirm", func() bool {
		_, err := mesh.Request[protocol.Empty](f.guarded(), f.nc, subject, protocol.WorkerChanged{Worker: w})
		return err == nil
	})
}

// subscriber registers a worker with a queue of the topic.
func (f *fixture) subscriber(topic, queue string, kind protocol.Kind) *program {
	f.Helper()
	p := f.program(queue, func(s *protocol.Subscription) { s.Kind, s.Topic = kind, topic })
	f.follow(topic, p.record)
	return p
}

func (f *fixture) publishTopic(topic string, data []byte) (protocol.PublishAck, *protocol.Error) {
	f.Helper()
	m, err := f.nc.RequestWithContext(f.guarded(), protocol.PublishTopicSubject(topic), data)
	f.must(err)
	if refused := protocol.ParseErrorBody(m.Data); refused != nil {
		return protocol.PublishAck{}, refused
	}
	var ack protocol.PublishAck
	f.must(json.Unmarshal(m.Data, &ack))
	return ack, nil
}

func (f *fixture) queueNamed(name string) protocol.QueueInfo {
	f.Helper()
	pages, err := mesh.Gather[protocol.QueuesPage](f.guarded(), f.nc, protocol.SubjectQueues, protocol.QueuesRequest{Queue: name}, 100*time.Millisecond)
	f.must(err)
	for _, page := range pages {
		for _, q := range page.Queues {
			return q
		}
	}
	return protocol.QueueInfo{}
}

// Whichever router takes a publish, it is stored where the topic lies, also of
// a topic whose name ends as a mark begins.
func TestTopicsOverTwoRouters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.router("b", nil)
	f.await("both to have lanes", func() bool { return f.lanes("a") == lanes/2 && f.lanes("b") == lanes/2 })
	for i := range 8 {
		topic := "news." + strconv.Itoa(i)
		if i == 7 {
			topic = "odd:"
		}
		observer, group := f.subscriber(topic, topic+"::observer:x", protocol.KindObserve), f.subscriber(topic, topic+"::@g", protocol.KindObserve)
		for range 10 { // so that both routers are asked
			ack, refused := f.publishTopic(topic, []byte(topic))
			if refused != nil || ack.Listeners != 2 {
				t.Fatalf("%s: %+v, %v", topic, ack, refused)
			}
		}
		for _, p := range []*program{observer, group} {
			for range 10 {
				m := p.next()
				if string(m.Data) != topic {
					t.Errorf("%q came to %s", m.Data, topic)
				}
				p.end(m, protocol.Acknowledged)
			}
		}
	}
}

// A queue that is full refuses for all, so that nobody misses what others have;
// a message for many queues has the bytes of one.
func TestQuotasOfTopics(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const size = 1000
	f.router("a", func(o *router.Options) { o.Limits = router.Limits{QueueMessages: 5, TotalBytes: 10 * size} })
	for i := range 10 {
		queue := "news::observer:" + strconv.Itoa(i)
		f.subscriber("news", queue, protocol.KindObserve).leaves()
		f.await("the observer to be detached", func() bool { return !f.queueNamed(queue).DetachedAt.IsZero() })
	}
	for range 5 {
		if ack, refused := f.publishTopic("news", make([]byte, size)); refused != nil || ack.Listeners != 10 {
			t.Fatalf("%+v, %v", ack, refused)
		}
	}
	if _, refused := f.publishTopic("news", nil); refused == nil || refused.Code != protocol.CodeQuotaExceeded {
		t.Fatalf("past the limit of a queue: %v", refused)
	}
	f.subscriber("other", "other::observer:x", protocol.KindObserve).leaves()
	for range 4 { // with the five bodies of news: nine
		if _, refused := f.publishTopic("other", make([]byte, size)); refused != nil {
			t.Fatal(refused)
		}
	}
	if _, refused := f.publishTopic("other", make([]byte, 2*size)); refused == nil || refused.Code != protocol.CodeQuotaExceeded {
		t.Errorf("past the limit of the mesh: %v", refused)
	}
	for i := range 10 {
		if q := f.queueNamed("news::observer:" + strconv.Itoa(i)); q.Ready != 5 || q.Bytes != 5*size {
			t.Errorf("%+v", q)
		}
	}
}

// A lane that another router takes over knows who subscribes, and a listener
// that nobody tells of any more is let go.
func TestBindingsOutliveTheirOwner(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.router("a", nil)
	f.set(func(s *protocol.Settings) { s.Observers.ObserverGraceMs = 1000 }) // else they have that long to come back
	observer, listener := f.subscriber("news", "news::observer:x", protocol.KindObserve), f.subscriber("news", "news::listen:y", protocol.KindListen)
	f.must(s.Stop(context.Background()))
	for _, p := range []*program{observer, listener} { // they leave while no router is there
		p.leaves()
	}
	f.router("b", nil)
	ack, refused := f.publishTopic("news", []byte("x"))
	if refused != nil || ack.Listeners != 2 {
		t.Fatalf("%+v, %v", ack, refused)
	}
	f.await("the listener to be let go", func() bool {
		ack, refused := f.publishTopic("news", []byte("x"))
		return refused == nil && ack.Listeners == 1
	})
	f.await("the observer to be detached", func() bool {
		q := f.queueNamed("news::observer:x")
		return !q.DetachedAt.IsZero() && q.Ready > 0
	})
	f.await("the listener's queue to be forgotten", func() bool { return f.queueNamed("news::listen:y").Queue == "" })
	all, err := mesh.Gather[protocol.Stats](f.guarded(), f.nc, protocol.SubjectStats, protocol.Empty{}, 100*time.Millisecond)
	f.must(err)
	if n := all[0].Counters[protocol.CountDiscarded]; n == 0 {
		t.Error("what the listener held is not counted")
	}
}

// A record that is older than what a router knows changes nothing.
func TestOlderRecordsAreNotFollowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	p := f.subscriber("news", "news::listen:y", protocol.KindListen)
	old := p.record
	f.mu.Lock()
	old.KVRevision = f.revision
	f.mu.Unlock()
	now := p.record
	now.Subscriptions = nil
	f.follow("news", now)
	subject := protocol.SubjectLane + ledger.Name("router", ledger.OfTopic("news", lanes)) + ".follow"
	_, err := mesh.Request[protocol.Empty](f.guarded(), f.nc, subject, protocol.WorkerChanged{Worker: old})
	f.must(err)
	if ack, refused := f.publishTopic("news", nil); refused != nil || ack.Listeners != 0 {
		t.Errorf("%+v, %v", ack, refused)
	}
	p.leaves()
	f.mu.Lock()
	f.workers[old.ID] = old // a list that was made before
	f.mu.Unlock()
	body, err := json.Marshal(protocol.WorkerChanged{Worker: old})
	f.must(err)
	f.must(f.nc.Publish(protocol.SubjectWorkerChanged, body))
	_, err = mesh.Request[protocol.Empty](f.guarded(), f.nc, subject, protocol.WorkerChanged{Worker: old})
	f.must(err)
	if ack, refused := f.publishTopic("news", nil); refused != nil || ack.Listeners != 0 {
		t.Errorf("after it left: %+v, %v", ack, refused)
	}
	if _, err := mesh.Request[protocol.Empty](f.guarded(), f.nc, subject, "nonsense"); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("nonsense: %v", err)
	}
}
