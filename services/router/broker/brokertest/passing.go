package brokertest

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// passing are the tests of a broker that has topics only and keeps nothing. Like the
// others they share the mesh.
var passing = []testCase{
	{"QueuesRefused", (*suite).queuesRefused},
	{"TopicWishes", (*suite).topicWishes},
	{"TopicPasses", (*suite).topicPasses},
	{"TopicOnce", (*suite).topicOnce},
	{"TopicMissed", (*suite).topicMissed},
	{"TopicOneTry", (*suite).topicOneTry},
	{"TopicNoLetters", (*suite).topicNoLetters},
	{"TopicFiltered", (*suite).topicFiltered},
	{"TopicRefused", (*suite).topicRefused},
}

// passingAlone are those of them that restart the mesh or cut it off.
var passingAlone = []testCase{
	{"TopicSevered", (*suite).topicSevered},
	{"TopicAfterRestart", (*suite).topicAfterRestart},
}

// RunPassing runs the tests of a broker that has topics only.
func RunPassing(t *testing.T, target Target) {
	if !target.Capabilities.TopicsOnly {
		t.Fatal("the target has queues: run all of the suite")
	}
	run(t, target, passing, passingAlone)
}

// passed is an observer of such a broker, where nothing is tried again.
func passed(topic, id string) protocol.SubscriptionSpec {
	spec := observe(topic, id)
	spec.BackoffMs = 0
	return spec
}

func (s *suite) unsupported(what string, refused *protocol.Error) {
	s.Helper()
	if refused == nil || refused.Code != protocol.CodeUnsupported {
		s.Errorf("%s: %v, want %s", what, refused, protocol.CodeUnsupported)
	}
}

// queuesRefused: there is no queue, neither an execution's nor a named one.
func (s *suite) queuesRefused() {
	_, refused := s.tryPublish(protocol.PublishQueueSubject(s.execution, "r"), []byte("x"), nil)
	s.unsupported("a publish", refused)
	s.unsupported("a subscription", s.unregistered().tryHello(s.on("r")))
	s.unsupported("a definition", s.tryDefine(s.execution, `{}`))
	_, refused = s.tryPublish(protocol.PublishJobSubject(protocol.DefaultQueue), []byte("{}"), s.jobHeader("f"))
	s.unsupported("a job", refused)
	equal(s, "stored", s.queue(s.execution, "r").Counters[protocol.CountPublished], 0)
}

// topicWishes: what cannot be done for a subscriber or a publish is refused.
func (s *suite) topicWishes() {
	topic := s.topic()
	for what, change := range map[string]func(*protocol.SubscriptionSpec){
		"fifo":    func(p *protocol.SubscriptionSpec) { p.Type = protocol.TypeFIFO },
		"retries": func(p *protocol.SubscriptionSpec) { p.MaxRetries = 5 },
		"backoff": func(p *protocol.SubscriptionSpec) { p.BackoffMs = 77 },
		"delay":   func(p *protocol.SubscriptionSpec) { *p = tuned(topic, "late", `{"delaySeconds":1}`) },
	} {
		spec := passed(topic, what)
		change(&spec)
		s.unsupported(what, s.unregistered().tryHello(spec))
	}
	_, refused := s.tryPublish(protocol.PublishTopicSubject(topic), nil, nats.Header{protocol.HeaderDelayMs: {"400"}})
	s.unsupported("a publish for later", refused)
}

// topicPasses: whoever is there has a copy, byte for byte the same: each observer,
// one of a group, and each who listens.
func (s *suite) topicPasses() {
	topic := s.topic()
	copies := map[string]*worker{"one": s.worker(passed(topic, "one")), "two": s.worker(passed(topic, "two")), "raw": s.worker(listenTo(topic))}
	member := s.worker(passed(topic, "@g"))
	for _, payload := range [][]byte{{0, 255, '{', 10, 0}, []byte(`{"a": "<é>"}`), nil} {
		ack := s.publishTopic(topic, payload, hostile...)
		equal(s, "listeners", ack.Listeners, 4)
		equal(s, "durability", ack.Durability, protocol.DurabilityNone)
		equal(s, "broker", ack.Broker, s.Broker)
		for name, w := range copies {
			d := w.next()
			equal(s, "message id", d.id(), ack.MessageID)
			equal(s, "attempt", d.attempt(), 1)
			s.same(name, d.Data, d.Header, payload)
			d.end(protocol.Acknowledged)
		}
		member.next().end(protocol.Acknowledged)
	}
	for _, queue := range []string{observerQueue(topic, "one"), observerQueue(topic, "two"), groupQueue(topic, "g")} {
		s.balanced(queue, 3, 3, 0)
	}
	equal(s, "deliveries", len(member.deliveries), 0)
}

// topicOnce: an id counts once in its topic.
func (s *suite) topicOnce() {
	topic := s.topic()
	w := s.worker(passed(topic, "a"))
	first := s.publishTopic(topic, []byte("x"), protocol.HeaderDedup, "1")
	again := s.publishTopic(topic, []byte("y"), protocol.HeaderDedup, "1")
	equal(s, "duplicate", again.Duplicate, true)
	equal(s, "message id", again.MessageID, first.MessageID)
	s.publishTopic(topic, []byte("z"), protocol.HeaderDedup, "2")
	for _, want := range []string{"x", "z"} {
		d := w.next()
		equal(s, "payload", string(d.Data), want)
		d.end(protocol.Acknowledged)
	}
	s.balanced(observerQueue(topic, "a"), 2, 2, 0)
}

// topicMissed: what is published while nobody is there is nobody's, also when they
// come back.
func (s *suite) topicMissed() {
	topic := s.topic()
	equal(s, "listeners", s.publishTopic(topic, []byte("0")).Listeners, 0)
	for i := range 2 {
		w := s.worker(passed(topic, "a"), listenTo(topic))
		equal(s, "listeners", s.publishTopic(topic, []byte(strconv.Itoa(i+1))).Listeners, 2)
		for range 2 {
			d := w.next()
			equal(s, "payload", string(d.Data), strconv.Itoa(i+1))
			d.end(protocol.Acknowledged)
		}
		w.bye()
		equal(s, "listeners", s.publishTopic(topic, []byte("missed")).Listeners, 0)
	}
}

// topicOneTry: a message that fails is called for once, and is gone.
func (s *suite) topicOneTry() {
	topic := s.topic()
	w, raw := s.worker(passed(topic, "a")), s.worker(listenTo(topic))
	for _, how := range []protocol.Outcome{protocol.Failed, protocol.Rejected} {
		s.publishTopic(topic, []byte(how))
		w.next().end(how)
		raw.next().end(how)
	}
	q := s.settled(observerQueue(topic, "a"), 0)
	s.eventually("the counters", func() bool {
		q = s.queueNamed(observerQueue(topic, "a"))
		return q.Counters[protocol.CountDiscarded] == 2
	})
	for counter, want := range map[string]uint64{
		protocol.CountPublished: 2, protocol.CountDelivered: 2, protocol.CountFailed: 1, protocol.CountRejected: 1,
		protocol.CountRetried: 0, protocol.CountDeadLettered: 0, protocol.CountDropped: 0,
	} {
		equal(s, counter, q.Counters[counter], want)
	}
	s.publishTopic(topic, []byte("next"))
	for _, x := range []*worker{w, raw} {
		d := x.next()
		equal(s, "payload", string(d.Data), "next")
		d.end(protocol.Acknowledged)
	}
}

// topicNoLetters: every operation on the dead letters of a topic or a subscriber is
// refused by whoever has none, whether anybody is there or not.
func (s *suite) topicNoLetters() {
	topic := s.topic()
	s.worker(passed(topic, "a"))
	for what, err := range map[string]error{
		"list":    refusalOf[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Topic: topic}),
		"of one":  refusalOf[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: observerQueue(topic, "a")}),
		"unknown": refusalOf[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Topic: s.topic()}),
		"redrive": refusalOf[protocol.DeadActReply](s, protocol.SubjectDeadRedrive, protocol.DeadActRequest{Topic: topic}),
		"discard": refusalOf[protocol.DeadActReply](s, protocol.SubjectDeadDiscard, protocol.DeadActRequest{Queue: observerQueue(topic, "a")}),
	} {
		s.unsupported(what, protocol.AsError(err))
	}
}

func refusalOf[R any](s *suite, subject string, q any) error {
	s.Helper()
	_, err := mesh.Request[R](s.guarded(), s.nc, subject, q)
	if err == nil {
		s.Errorf("%s with %+v is not refused", subject, q)
	}
	return err
}

// topicFiltered: who wants some of a topic is called for that.
func (s *suite) topicFiltered() {
	topic := s.topic()
	spec := filtered(topic, "some", `{"input.n":{"$gt":1}}`)
	spec.BackoffMs = 0
	w := s.worker(spec)
	for _, payload := range []string{`{"n":1}`, `{"n":2}`, `x`, `{"n":3}`} {
		s.publishTopic(topic, []byte(payload))
	}
	for _, want := range []string{`{"n":2}`, `{"n":3}`} {
		d := w.next()
		equal(s, "payload", string(d.Data), want)
		d.end(protocol.Acknowledged)
	}
	s.balanced(observerQueue(topic, "some"), 4, 2, 2)
}

// topicSevered: after a lost connection messages pass again, without an operator.
func (s *suite) topicSevered() {
	topic := s.topic()
	w := s.worker(passed(topic, "a"))
	s.Sever(s.T)
	s.passesAgain(topic, w)
}

// topicAfterRestart: so they do after a restart of the mesh.
func (s *suite) topicAfterRestart() {
	topic := s.topic()
	w := s.worker(passed(topic, "a"))
	s.Restart(s.T)
	s.passesAgain(topic, w)
}

func (s *suite) passesAgain(topic string, w *worker) {
	s.Helper()
	s.eventually("a message to pass again", func() bool {
		if _, refused := s.tryPublish(protocol.PublishTopicSubject(topic), []byte("x"), nil); refused != nil {
			return false
		}
		select {
		case d := <-w.deliveries:
			d.end(protocol.Acknowledged)
			return true
		default:
			return false
		}
	})
}
