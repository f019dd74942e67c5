package brokertest

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// routesAlike are names that a broker's own places, or a careless mapping,
// might take for one another.
var routesAlike = []string{
	"a", "A", "a.b", "a-b", "a_b", "a.b.c", "dlq", "a.dlqs", "a.retry", "a.retry.1000x", "retry.1000.a",
	"queue", "topic", "queue.a", "0", "-", "_", "observer", "exchange", "a.queue", "default",
}

// names: each route is a queue of its own, with its own retries and dead
// letters, whatever it looks like.
func (s *suite) names() {
	for _, route := range routesAlike {
		s.publish(route, []byte(route))
	}
	specs := make([]protocol.SubscriptionSpec, 0, len(routesAlike))
	for _, route := range routesAlike {
		spec := s.on(route)
		spec.MaxRetries = 2
		specs = append(specs, spec)
	}
	w := s.worker(specs...)
	for range 2 * len(routesAlike) {
		d := w.next()
		if !strings.HasSuffix(d.Subject, w.ids[string(d.Data)]) {
			s.Errorf("the message of %s came to another route's consumer", d.Data)
		}
		d.end(protocol.Failed)
	}
	for _, route := range routesAlike {
		equal(s, "dead letter of "+route, string(s.awaitLetters(route, 1)[0].Payload), route)
	}
}

// topicNames: topics, observers and groups are told apart as well, and from
// routes of the same name.
func (s *suite) topicNames() {
	base := s.topic()
	subscribers := [][2]string{ // topic, observer or group
		{base, "a"}, {base, "A"}, {base, "@a"}, {base, "a.b"}, {base, "@a.b"}, {base, "a:b"}, {base, "queue"}, {base, "dlqs"},
		{base + ".a", "b"}, {base + ".a", "@b"}, {base + ":a", "b"}, {base + ".exchange", "a"},
	}
	workers := map[[2]string]*worker{}
	for _, sub := range subscribers {
		workers[sub] = s.worker(observe(sub[0], sub[1]))
	}
	receives := map[string]int{}
	for _, sub := range subscribers {
		receives[sub[0]]++
	}
	for topic, n := range receives {
		equal(s, "listeners of "+topic, s.publishTopic(topic, []byte(topic)).Listeners, n)
	}
	s.publish(base, []byte("a route")) // which nobody consumes
	for sub, w := range workers {
		d := w.next()
		equal(s, fmt.Sprint("message of ", sub), string(d.Data), sub[0])
		d.end(protocol.Acknowledged)
		equal(s, fmt.Sprint("more of ", sub), len(w.deliveries), 0)
	}
	s.wantReady(scope.ScopedName(s.execution, base), 1)
}

// longNames: the longest names work to the end, or are refused where the
// broker has no room for them; then nothing is stored.
func (s *suite) longNames() {
	execution := pad(s.execution)
	for _, length := range []int{100, scope.MaxName} {
		route := strings.Repeat("r", length)
		if most := s.Capabilities.MaxName; most > 0 && len(execution)+length > most {
			_, refused := s.tryPublish(protocol.PublishQueueSubject(execution, route), nil, nats.Header{})
			if refused == nil || refused.Code != protocol.CodeInvalidName {
				s.Errorf("a name of %d bytes where there is room for %d: %v", len(execution)+length, most, refused)
			}
			equal(s, "stored", s.queue(execution, route).Counters[protocol.CountPublished], 0)
			continue
		}
		spec := s.on(route)
		spec.Execution, spec.MaxRetries = execution, 2
		w := s.worker(spec)
		id := s.publishTo(execution, route, []byte("x")).MessageID
		w.next().end(protocol.Failed)
		w.next().end(protocol.Failed)
		s.eventually("the dead letter", func() bool { return len(s.letters(execution, route)) == 1 })
		equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: id}), 1)
		w.next().end(protocol.Acknowledged)
	}
}
