package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// topic is a fresh one.
func (s *suite) topic() string {
	topic := "topic." + nuid.Next()
	s.topics = append(s.topics, topic)
	return topic
}

// observe is an observer that fails fast. An id that begins with @ is a group.
func observe(topic, id string) protocol.SubscriptionSpec {
	spec := protocol.SubscriptionSpec{Ref: topic + "/" + id, Kind: protocol.KindObserve, Topic: topic, ObserverID: id, BackoffMs: 1}
	if id != "" && id[0] == '@' {
		spec.ObserverID, spec.Group = "", id[1:]
	}
	return spec
}

func listenTo(topic string) protocol.SubscriptionSpec {
	return protocol.SubscriptionSpec{Ref: topic, Kind: protocol.KindListen, Topic: topic}
}

func observerQueue(topic, id string) string { return topic + "::observer:" + id }
func groupQueue(topic, group string) string { return topic + "::@" + group }

// publishTopic publishes to a topic and expects it to be stored.
func (s *suite) publishTopic(topic string, data []byte, headers ...string) protocol.PublishAck {
	s.Helper()
	ack, refused := s.tryPublish(protocol.PublishTopicSubject(topic), data, pairs(headers))
	if refused != nil {
		s.Fatalf("publishing to the topic %s: %v", topic, refused)
	}
	return ack
}

// refusals are the subscriptions of a declaration that are not taken.
func (w *worker) refusals(specs ...protocol.SubscriptionSpec) []protocol.RefusedSubscription {
	w.s.Helper()
	w.mu.Lock()
	w.revision++
	hello := protocol.Hello{WorkerID: w.id, Name: w.name, Revision: w.revision, Subscriptions: w.s.fast(specs)}
	w.mu.Unlock()
	return ask[protocol.Registered](w.s, protocol.SubjectHello, hello).Refused
}

// topicCopies: every subscriber, in whatever execution, has a copy of its own,
// byte for byte the same, once.
func (s *suite) topicCopies() {
	topic, payload := s.topic(), []byte{0, 255, '{', 10, 0}
	inOne, inOther := observe(topic, "one"), listenTo(topic)
	inOne.Execution, inOther.Execution = s.execution, "other"
	copies := map[string]*worker{"one": s.worker(inOne), "other": s.worker(inOther), "none": s.worker(observe(topic, "three"))}
	ack := s.publishTopic(topic, payload, hostile...)
	equal(s, "listeners", ack.Listeners, 3)
	for name, w := range copies {
		d := w.next()
		equal(s, "message id", d.id(), ack.MessageID)
		s.same(name, d.Data, d.Header, payload)
		d.end(protocol.Acknowledged)
	}
	for _, id := range []string{"one", "three"} {
		q := s.settled(observerQueue(topic, id), 0)
		equal(s, "delivered", q.Counters[protocol.CountDelivered], 1)
		equal(s, "topic", q.Topic, topic)
	}
}

// topicNobody: nobody there is a success, and nothing is stored.
func (s *suite) topicNobody() {
	topic := s.topic()
	ack := s.publishTopic(topic, []byte("x"))
	equal(s, "listeners", ack.Listeners, 0)
	equal(s, "stream", ack.Stream, "WAYBILL_"+s.Broker)
	w := s.worker(observe(topic, "late"))
	s.stays("nothing delivered", func() bool { return len(w.deliveries) == 0 })
	equal(s, "listeners", s.publishTopic(topic, []byte("y")).Listeners, 1)
	w.next().end(protocol.Acknowledged)
}

// topicRefused: names of topics and subscribers are checked.
func (s *suite) topicRefused() {
	for _, topic := range []string{"*", "a.>", "a::b", "a.dlq", "observer:x", "ä"} {
		_, refused := s.tryPublish(protocol.SubjectPublishTopic+topic, nil, nil)
		if refused == nil || refused.Code != protocol.CodeInvalidName {
			s.Errorf("publishing to %q: %v", topic, refused)
		}
	}
	_, refused := s.tryPublish(protocol.PublishTopicSubject("t"), nil, nats.Header{"x-delivery-attempt": {"1"}})
	if refused == nil || refused.Code != protocol.CodeReservedHeader {
		s.Errorf("a reserved header: %v", refused)
	}
	for what, spec := range map[string]protocol.SubscriptionSpec{
		"topic":       observe("a b", "x"),
		"id":          observe("t", "x::y"),
		"group":       observe("t", "@a b"),
		"kind":        {Ref: "r", Kind: "peep", Topic: "t"},
		"route":       {Ref: "r", Kind: protocol.KindObserve, Topic: "t", Route: "r"},
		"no topic":    {Ref: "r", Kind: protocol.KindListen},
		"retries":     {Ref: "r", Kind: protocol.KindListen, Topic: "t", MaxRetries: 3},
		"a queue":     {Ref: "r", Execution: "e", Route: "r", Topic: "t"},
		"too long":    {Ref: "r", Kind: protocol.KindObserve, Topic: "t", TimeoutMs: protocol.MaxObserverTimeoutMs + 1},
		"a listeners": {Ref: "r", Kind: protocol.KindListen, Topic: "t", ObserverID: "x"},
	} {
		w := s.unregistered()
		_, err := mesh.Request[protocol.Registered](s.guarded(), s.nc, protocol.SubjectHello,
			protocol.Hello{WorkerID: w.id, Revision: 1, Subscriptions: []protocol.SubscriptionSpec{spec}})
		if code := protocol.CodeOf(err); code != protocol.CodeInvalidName && code != protocol.CodeInvalidArgs {
			s.Errorf("%s: %v", what, err)
		}
	}
}

// topicDedup: an id counts once in its topic, and a topic's ids are no queue's.
func (s *suite) topicDedup() {
	topic := s.topic()
	w := s.worker(observe(topic, "a"), observe(topic, "b"))
	first := s.publishTopic(topic, []byte("x"), protocol.HeaderDedup, "1")
	again := s.publishTopic(topic, []byte("y"), protocol.HeaderDedup, "1")
	equal(s, "duplicate", again.Duplicate, true)
	equal(s, "message id", again.MessageID, first.MessageID)
	other := s.publishTopic(topic+".other", []byte("z"), protocol.HeaderDedup, "1")
	equal(s, "another topic's duplicate", other.Duplicate, false)
	for range 2 {
		d := w.next()
		equal(s, "payload", string(d.Data), "x")
		d.end(protocol.Acknowledged)
	}
	s.stays("no further delivery", func() bool { return len(w.deliveries) == 0 })
}

// observerRetries: a failure is tried again for that observer alone, by its
// own policy, and ends in its own dead letters.
func (s *suite) observerRetries() {
	topic := s.topic()
	one, four := observe(topic, "one"), observe(topic, "four")
	one.MaxRetries, four.MaxRetries = 1, 4
	failing, patient, fine := s.worker(one), s.worker(four), s.worker(observe(topic, "fine"))
	s.publishTopic(topic, []byte("x"))
	failing.next().endWith(protocol.Failed, "no disk")
	for attempt := 1; attempt <= 4; attempt++ {
		d := patient.next()
		equal(s, "attempt", d.attempt(), attempt)
		d.end(protocol.Failed)
	}
	fine.next().end(protocol.Acknowledged)
	equal(s, "delivered", s.settled(observerQueue(topic, "fine"), 0).Counters[protocol.CountDelivered], 1)
	s.settled(observerQueue(topic, "one"), 1)
	s.settled(observerQueue(topic, "four"), 1)
}

// observerReturns: who comes back under an id, in whatever worker, finds what
// was published meanwhile, once.
func (s *suite) observerReturns() {
	topic := s.topic()
	first := s.worker(observe(topic, "a"))
	s.publishTopic(topic, []byte("0"))
	first.next().end(protocol.Acknowledged)
	first.bye()
	for i := range 5 {
		equal(s, "listeners", s.publishTopic(topic, fmt.Append(nil, i+1)).Listeners, 1)
	}
	equal(s, "attached while nobody observes", s.wantReady(observerQueue(topic, "a"), 5).DetachedAt.IsZero(), false)
	second := s.worker(observe(topic, "a"))
	found := make([]string, 0, 5)
	for range 5 {
		d := second.next()
		found = append(found, string(d.Data))
		d.end(protocol.Acknowledged)
	}
	if s.Capabilities.Open { // what a broker has back as the first leaves it may deliver later
		slices.Sort(found)
	}
	equal(s, "payloads", strings.Join(found, " "), "1 2 3 4 5")
	q := s.settled(observerQueue(topic, "a"), 0)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 6)
	equal(s, "attached", q.DetachedAt.IsZero(), true)
}

// observerRemoved: nothing is delivered once the removal is answered.
func (s *suite) observerRemoved() {
	for range 10 {
		topic := s.topic()
		w := s.worker(observe(topic, "a"), observe(topic, "b"))
		w.hello(observe(topic, "b"))
		s.publishTopic(topic, []byte("x"))
		d := w.next()
		equal(s, "subject", d.Subject, protocol.DeliverSubject("local", w.ids[topic+"/b"]))
		d.end(protocol.Acknowledged)
		w.bye()
		s.publishTopic(topic, []byte("y"))
		equal(s, "deliveries", len(w.deliveries), 0)
		equal(s, "delivered to the observer that was removed", s.wantReady(observerQueue(topic, "a"), 2).Counters[protocol.CountDelivered], 0)
	}
}

// observerConflict: one worker at a time has an id; the same program that was
// killed has it back at once.
func (s *suite) observerConflict() {
	topic := s.topic()
	first, second := s.worker(observe(topic, "a")), s.unregistered()
	second.name = "another program"
	refused := second.refusals(observe(topic, "a"), observe(topic, "b"))
	if len(refused) != 1 || refused[0].Ref != topic+"/a" || refused[0].Error.Code != protocol.CodeObserverIDConflict {
		s.Fatalf("refused: %+v", refused)
	}
	equal(s, "listeners", s.publishTopic(topic, []byte("x")).Listeners, 2) // the other subscription stands
	same := s.unregistered()
	equal(s, "refused while it lives", len(same.refusals(observe(topic, "a"))), 1)
	held := first.next()
	first.die()
	s.eventually("the server to notice", func() bool {
		_, err := s.nc.Request(protocol.WorkerSubject(first.id, protocol.VerbProbe), nil, look)
		return errors.Is(err, nats.ErrNoResponders)
	})
	same.hello(observe(topic, "a"))
	again := same.next()
	equal(s, "message id", again.id(), held.id())
	equal(s, "attempt", again.attempt(), 1)
	again.end(protocol.Acknowledged)
	s.settled(observerQueue(topic, "a"), 0)
}

// group: each message goes to one member, in whatever worker, and goes on as
// long as one is left.
func (s *suite) group() {
	topic := s.topic()
	var handled atomic.Int64
	members := make([]*worker, 3)
	for i := range members {
		members[i] = s.worker(observe(topic, "@g"))
		members[i].each(func(delivery) protocol.Outcome {
			handled.Add(1)
			return protocol.Acknowledged
		})
	}
	single := s.worker(observe(topic, "single"))
	for range 60 {
		equal(s, "listeners", s.publishTopic(topic, []byte("x")).Listeners, 2)
		single.next().end(protocol.Acknowledged)
	}
	s.settled(groupQueue(topic, "g"), 0)
	equal(s, "handled", handled.Load(), 60)
	members[0].bye()
	members[1].bye()
	for range 20 {
		s.publishTopic(topic, []byte("x"))
		single.next().end(protocol.Acknowledged)
	}
	equal(s, "acknowledged", s.settled(groupQueue(topic, "g"), 0).Counters[protocol.CountAcknowledged], 80)
}

// groupMemberKilled: what it held goes to the others, nothing spent.
func (s *suite) groupMemberKilled() {
	topic := s.topic()
	victim, other := s.worker(observe(topic, "@g")), s.unregistered()
	for range 10 {
		s.publishTopic(topic, []byte("x"))
	}
	held := map[string]bool{}
	for range 10 {
		held[victim.next().id()] = true
	}
	other.hello(observe(topic, "@g"))
	victim.die()
	for range 10 {
		d := other.next()
		equal(s, "attempt", d.attempt(), 1)
		equal(s, "held by the victim", held[d.id()], true)
		delete(held, d.id())
		d.end(protocol.Acknowledged)
	}
	q := s.settled(groupQueue(topic, "g"), 0)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
	equal(s, "vanished", q.Counters[protocol.CountVanished], 10)
}

// listener: one attempt. What fails is dead for that listener alone, and says
// so; what has no outcome, or is handed back, comes again.
func (s *suite) listener() {
	topic := s.topic()
	slow := listenTo(topic)
	slow.TimeoutMs = 50
	failing, rejecting, late, fine := s.worker(listenTo(topic)), s.worker(listenTo(topic)), s.worker(slow), s.worker(listenTo(topic))
	s.publishTopic(topic, []byte("x"))
	failing.next().endWith(protocol.Failed, "no disk")
	rejecting.next().end(protocol.Rejected)
	late.next()
	for _, o := range []protocol.Outcome{protocol.Pending, protocol.Cancelled, protocol.Acknowledged} {
		d := fine.next()
		equal(s, "attempt", d.attempt(), 1)
		d.end(o)
	}
	var letters []protocol.DeadLetter
	s.eventually("three dead letters", func() bool {
		letters = ask[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Topic: topic}).Letters
		return len(letters) == 3
	})
	whose := map[string]protocol.Reason{}
	for _, l := range letters {
		whose[l.Source] = l.Reason
		equal(s, "queue", l.Queue, topic+"::listen:"+l.Source)
		equal(s, "topic", l.Topic, topic)
		equal(s, "attempts", l.Attempts, 1)
	}
	equal(s, "reason", whose[failing.ids[topic]], protocol.ReasonFailed)
	equal(s, "reason", whose[rejecting.ids[topic]], protocol.ReasonRejected)
	equal(s, "reason", whose[late.ids[topic]], protocol.ReasonTimeout)
	s.settled(topic+"::listen:"+fine.ids[topic], 0)
}

// listenerGone: its queue ends with it. What it holds is discarded; what is
// redriven to it later is a dead letter again.
func (s *suite) listenerGone() {
	topic := s.topic()
	spec := listenTo(topic)
	spec.Concurrency = new(1)
	w := s.worker(spec)
	queue := topic + "::listen:" + w.ids[topic]
	for range 5 {
		s.publishTopic(topic, []byte("x"))
	}
	w.next().end(protocol.Failed)
	s.eventually("a dead letter", func() bool { return s.queueNamed(queue).Dead == 1 })
	w.next() // in its hands when it leaves
	before := s.counted(protocol.CountDiscarded)
	w.bye()
	equal(s, "listeners", s.publishTopic(topic, []byte("y")).Listeners, 0)
	s.eventually("what it held to be discarded", func() bool { return s.counted(protocol.CountDiscarded) >= before+4 })
	s.eventually("its queue to be forgotten", func() bool { return s.queueNamed(queue).Counters[protocol.CountPublished] == 0 })
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: queue}), 1)
	s.eventually("a dead letter again", func() bool {
		letters := ask[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: queue}).Letters
		return len(letters) == 1 && letters[0].Reason == protocol.ReasonGone && letters[0].Generation == 1
	})
}

// counted is a counter over the whole mesh.
func (s *suite) counted(name string) (n uint64) {
	s.Helper()
	all, err := mesh.Gather[protocol.Stats](s.guarded(), s.nc, protocol.SubjectStats, protocol.Empty{}, 0)
	if err != nil {
		s.Fatal(err)
	}
	for _, one := range all {
		n += one.Counters[name]
	}
	return n
}

// fanOut: two hundred observers have each message once, byte for byte.
func (s *suite) fanOut() {
	const messages = 20
	observers := 200
	if s.Capabilities.Open { // each queue is the broker's, and takes its time to make
		observers = 50
	}
	topic, payload := s.topic(), bytes.Repeat([]byte{0, 1, 254, 255}, 1000)
	specs := make([]protocol.SubscriptionSpec, observers)
	for i := range specs {
		specs[i] = observe(topic, fmt.Sprint("o", i))
	}
	w := s.worker(specs...)
	var mu sync.Mutex
	seen := map[string]int{}
	w.each(func(d delivery) protocol.Outcome {
		mu.Lock()
		defer mu.Unlock()
		if !bytes.Equal(d.Data[1:], payload) {
			s.Errorf("%s: the payload has changed", d.Subject)
		}
		seen[d.Subject+"/"+string(d.Data[:1])]++
		return protocol.Acknowledged
	})
	for i := range messages {
		equal(s, "listeners", s.publishTopic(topic, append([]byte{'a' + byte(i)}, payload...)).Listeners, observers)
	}
	s.eventually("every copy to be handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == observers*messages
	})
	for i := range observers {
		q := s.settled(observerQueue(topic, fmt.Sprint("o", i)), 0)
		equal(s, "delivered", q.Counters[protocol.CountDelivered], messages)
	}
}

// topicDeadLetters: by the bare topic, those of all subscribers; a redrive
// reaches the one that failed and no other.
func (s *suite) topicDeadLetters() {
	topic := s.topic()
	a, b, fine := s.worker(observe(topic, "a")), s.worker(observe(topic, "b")), s.worker(observe(topic, "fine"))
	ack := s.publishTopic(topic, []byte("x"))
	a.next().end(protocol.Rejected)
	b.next().end(protocol.Rejected)
	fine.next().end(protocol.Acknowledged)
	list := func(r protocol.DeadListRequest) int64 {
		return ask[protocol.DeadPage](s, protocol.SubjectDeadList, r).Total
	}
	s.eventually("two dead letters", func() bool { return list(protocol.DeadListRequest{Topic: topic}) == 2 })
	equal(s, "of one", list(protocol.DeadListRequest{Queue: observerQueue(topic, "a")}), 1)
	equal(s, "of another topic", list(protocol.DeadListRequest{Topic: topic + ".x"}), 0)
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: observerQueue(topic, "a")}), 1)
	d := a.next()
	equal(s, "message id", d.id(), ack.MessageID)
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Rejected)
	s.eventually("two dead letters", func() bool { return list(protocol.DeadListRequest{Topic: topic}) == 2 })
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Topic: topic}), 2)
	a.next().end(protocol.Acknowledged)
	b.next().end(protocol.Acknowledged)
	s.settled(observerQueue(topic, "a"), 0)
	s.settled(observerQueue(topic, "b"), 0)
	equal(s, "delivered to the other", s.queueNamed(observerQueue(topic, "fine")).Counters[protocol.CountDelivered], 1)
}

// topicOverRestart: who observes, and what is held for them, survives; so does
// a listener whose worker does.
func (s *suite) topicOverRestart() {
	topic := s.topic()
	away := s.worker(observe(topic, "away"))
	away.bye()
	there, raw := s.worker(observe(topic, "there")), s.worker(listenTo(topic))
	s.publishTopic(topic, []byte("before"))
	there.next().end(protocol.Acknowledged)
	raw.next().end(protocol.Acknowledged)
	s.Restart(s.T)
	equal(s, "listeners", s.publishTopic(topic, []byte("after")).Listeners, 3)
	back := s.worker(observe(topic, "away"))
	for _, payload := range []string{"before", "after"} {
		d := back.next()
		equal(s, "payload", string(d.Data), payload)
		d.end(protocol.Acknowledged)
	}
	for _, w := range []*worker{there, raw} {
		d := w.next()
		equal(s, "payload", string(d.Data), "after")
		d.end(protocol.Acknowledged)
	}
	s.settled(observerQueue(topic, "away"), 0)
}
