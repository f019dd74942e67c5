package brokertest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// filtered is an observer that wants some of its topic.
func filtered(topic, id, filter string) protocol.SubscriptionSpec {
	spec := observe(topic, id)
	spec.Filters = json.RawMessage(filter)
	return spec
}

// tuned is an observer with a queue_config.
func tuned(topic, id, config string) protocol.SubscriptionSpec {
	spec := observe(topic, id)
	spec.QueueConfig = json.RawMessage(config)
	return spec
}

// balanced is a queue whose messages have all come to an end: it says how.
func (s *suite) balanced(queue string, published, acknowledged, filtered uint64) {
	s.Helper()
	q := s.settled(queue, 0)
	s.eventually("the counters of "+queue, func() bool {
		q = s.queueNamed(queue)
		return q.Counters[protocol.CountPublished] == published && q.Counters[protocol.CountFiltered] == filtered &&
			q.Counters[protocol.CountAcknowledged] == acknowledged
	})
	for _, counter := range []string{protocol.CountRetried, protocol.CountDeadLettered, protocol.CountFailed} {
		equal(s, counter, q.Counters[counter], 0)
	}
}

// filters: an observer is called for what its filter matches, whatever the
// content type says; the rest is acknowledged unseen, and others have it all.
func (s *suite) filters() {
	topic := s.topic()
	urgent := s.worker(filtered(topic, "urgent", `{"input.priority":{"$eq":"high"}}`))
	nobody := s.worker(filtered(topic, "nobody", `{"input.priority":{"$eq":"none"}}`))
	all := s.worker(observe(topic, "all"))
	payloads := []string{
		`{"priority":"low"}`, `{"priority":"high","n":1}`, `not JSON`, ``, `{"priority":"high","n":2}`, `null`,
		`[{"priority":"high"}]`, `{"priority":"h\u0069gh","n":3}`, `"high"`,
	}
	for _, p := range payloads {
		equal(s, "listeners", s.publishTopic(topic, []byte(p), "Content-Type", "text/plain").Listeners, 3)
	}
	for _, want := range []string{payloads[1], payloads[4], payloads[7]} {
		d := urgent.next()
		equal(s, "payload", string(d.Data), want)
		equal(s, "attempt", d.attempt(), 1)
		d.end(protocol.Acknowledged)
	}
	for range payloads {
		all.next().end(protocol.Acknowledged)
	}
	s.balanced(observerQueue(topic, "urgent"), 9, 3, 6)
	s.balanced(observerQueue(topic, "nobody"), 9, 0, 9)
	s.balanced(observerQueue(topic, "all"), 9, 9, 0)
	equal(s, "deliveries beyond that", len(urgent.deliveries)+len(nobody.deliveries)+len(all.deliveries), 0)
}

// filtersOnly: a topic whose only observer wants nothing of a publish takes it,
// and stores nothing.
func (s *suite) filtersOnly() {
	topic := s.topic()
	w := s.worker(filtered(topic, "a", `{"input.n":{"$gt":5}}`))
	for i := range 10 {
		equal(s, "listeners", s.publishTopic(topic, []byte(fmt.Sprintf(`{"n":%d}`, i))).Listeners, 1)
	}
	for i := 6; i < 10; i++ {
		d := w.next()
		equal(s, "payload", string(d.Data), fmt.Sprintf(`{"n":%d}`, i))
		d.end(protocol.Acknowledged)
	}
	s.balanced(observerQueue(topic, "a"), 10, 4, 6)
}

// filtersChange: what was stored meanwhile is for the filter with which its
// observer comes back.
func (s *suite) filtersChange() {
	topic := s.topic()
	first := s.worker(filtered(topic, "a", `{"input":{"$eq":"odd"}}`))
	first.bye()
	for i := range 6 {
		s.publishTopic(topic, []byte([]string{`"even"`, `"odd"`}[i%2]))
	}
	second := s.worker(filtered(topic, "a", `{"input":{"$eq":"even"}}`))
	for range 3 {
		d := second.next()
		equal(s, "payload", string(d.Data), `"even"`)
		d.end(protocol.Acknowledged)
	}
	s.balanced(observerQueue(topic, "a"), 6, 3, 3)
	// The newest of a running observer's filters counts.
	second.hello(filtered(topic, "a", `{"input":{"$eq":"odd"}}`))
	s.publishTopic(topic, []byte(`"even"`))
	s.publishTopic(topic, []byte(`"odd"`))
	d := second.next()
	equal(s, "payload", string(d.Data), `"odd"`)
	d.end(protocol.Acknowledged)
	second.hello(observe(topic, "a"))
	s.publishTopic(topic, []byte(`"even"`))
	d = second.next()
	equal(s, "payload", string(d.Data), `"even"`)
	d.end(protocol.Acknowledged)
	s.balanced(observerQueue(topic, "a"), 9, 5, 4)
}

// filtersRetry: a message that matches and fails has its tries; the filter
// does not come between.
func (s *suite) filtersRetry() {
	topic := s.topic()
	spec := filtered(topic, "a", `{"input.n":{"$exists":true}}`)
	w := s.worker(spec)
	s.publishTopic(topic, []byte(`{"n":1}`))
	s.publishTopic(topic, []byte(`{}`))
	for attempt := 1; attempt <= 3; attempt++ {
		d := w.next()
		equal(s, "attempt", d.attempt(), attempt)
		d.end(protocol.Failed)
	}
	q := s.settled(observerQueue(topic, "a"), 1)
	equal(s, "filtered", q.Counters[protocol.CountFiltered], 1)
	equal(s, "failed", q.Counters[protocol.CountFailed], 3)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 3)
}

// filtersOfGroup: a message of a group goes to a member that wants it; what
// none wants is left out.
func (s *suite) filtersOfGroup() {
	topic := s.topic()
	a := s.worker(filtered(topic, "@g", `{"input.for":{"$eq":"a"}}`))
	b := s.worker(filtered(topic, "@g", `{"input.for":{"$in":["b","both"]}}`))
	kinds := []string{"a", "b", "none", "both"}
	const rounds = 25
	for i := range rounds * len(kinds) {
		s.publishTopic(topic, []byte(fmt.Sprintf(`{"for":%q,"n":%d}`, kinds[i%len(kinds)], i)))
	}
	for range rounds {
		d := a.next()
		equal(s, "for a", forWhom(s, d), "a")
		d.end(protocol.Acknowledged)
	}
	for range 2 * rounds {
		d := b.next()
		if whom := forWhom(s, d); whom != "b" && whom != "both" {
			s.Errorf("b has a message for %s", whom)
		}
		d.end(protocol.Acknowledged)
	}
	s.balanced(groupQueue(topic, "g"), 4*rounds, 3*rounds, rounds)
	// A member that wants everything takes what is left.
	c := s.worker(observe(topic, "@g"))
	s.publishTopic(topic, []byte(`{"for":"none"}`))
	c.next().end(protocol.Acknowledged)
	s.balanced(groupQueue(topic, "g"), 4*rounds+1, 3*rounds+1, rounds)
}

func forWhom(s *suite, d delivery) string {
	s.Helper()
	var m struct {
		For string `json:"for"`
	}
	if err := json.Unmarshal(d.Data, &m); err != nil {
		s.Fatal(err)
	}
	return m.For
}

// filtersPaused: what only a member wants that takes nothing waits for it, and
// holds up nobody.
func (s *suite) filtersPaused() {
	topic := s.topic()
	none, some := 0, 5
	paused := filtered(topic, "@g", `{"input.for":{"$eq":"a"}}`)
	paused.Concurrency = &none
	a := s.worker(paused)
	other := filtered(topic, "@g", `{"input.for":{"$ne":"a"}}`)
	other.Concurrency = &some
	b := s.worker(other)
	const rounds = 100
	for i := range rounds {
		s.publishTopic(topic, []byte(fmt.Sprintf(`{"for":"a","n":%d}`, i)))
	}
	s.publishTopic(topic, []byte(`{"for":"b"}`))
	d := b.next()
	equal(s, "for", forWhom(s, d), "b")
	d.end(protocol.Acknowledged)
	s.eventually("a backlog", func() bool { return s.queueNamed(groupQueue(topic, "g")).Ready == rounds })
	equal(s, "for the paused member", len(a.deliveries), 0)
	paused.Concurrency = &some
	a.hello(paused)
	for i := range rounds {
		d := a.next()
		equal(s, "message", string(d.Data), fmt.Sprintf(`{"for":"a","n":%d}`, i))
		d.end(protocol.Acknowledged)
	}
	s.balanced(groupQueue(topic, "g"), rounds+1, rounds+1, 0)
}

// filtersOfMany: more members with a filter each than are told apart at a
// glance.
func (s *suite) filtersOfMany() {
	topic := s.topic()
	const members = 70
	one := 1
	specs := make([]protocol.SubscriptionSpec, members)
	for i := range specs {
		specs[i] = filtered(topic, "@g", fmt.Sprintf(`{"input.n":{"$eq":%d}}`, i))
		specs[i].Ref, specs[i].Concurrency = strconv.Itoa(i), &one
	}
	w := s.worker(specs...)
	for i := range 2*members + 5 {
		s.publishTopic(topic, []byte(fmt.Sprintf(`{"n":%d}`, i%(members+1))))
	}
	counts := map[string]int{}
	for range 2*members + 3 {
		d := w.next()
		counts[string(d.Data)]++
		d.end(protocol.Acknowledged)
	}
	equal(s, "kinds", len(counts), members)
	s.balanced(groupQueue(topic, "g"), 2*members+5, 2*members+3, 2)
}

// filtersOrder: what a FIFO observer does not want holds up nobody.
func (s *suite) filtersOrder() {
	topic := s.topic()
	spec := filtered(topic, "a", `{"input":{"$gte":2}}`)
	spec.Type = protocol.TypeFIFO
	s.worker(spec).bye()
	for i := range 6 {
		s.publishTopic(topic, []byte(strconv.Itoa(i%4)))
	}
	w := s.worker(spec)
	for _, want := range []string{"2", "3"} {
		d := w.next()
		equal(s, "message", string(d.Data), want)
		s.stays("one at a time", func() bool { return len(w.deliveries) == 0 })
		d.end(protocol.Acknowledged)
	}
	s.balanced(observerQueue(topic, "a"), 6, 2, 4)
}

// filterRefused: nothing of a hello with a bad filter stands.
func (s *suite) filterRefused() {
	topic := s.topic()
	w := s.unregistered()
	refused := w.tryHello(observe(topic, "fine"), filtered(topic, "bad", `{"input.priority":"high"}`))
	if refused == nil || refused.Code != protocol.CodeInvalidFilter {
		s.Errorf("refused with %v", refused)
	}
	equal(s, "listeners", s.publishTopic(topic, nil).Listeners, 0)
}

// serial: the queue_config type fifo is strictly one after the other, whatever
// groups the publisher names and however many it could take, also over a
// failure.
func (s *suite) serial() {
	topic := s.topic()
	w := s.worker(tuned(topic, "a", `{"type":"fifo","concurrency":0,"backoffDelayMs":50}`))
	for i := range 6 {
		s.publishTopic(topic, []byte(strconv.Itoa(i)), protocol.HeaderGroup, strconv.Itoa(i%3))
	}
	for i := range 6 {
		d := w.next()
		equal(s, "message", string(d.Data), strconv.Itoa(i))
		s.stays("one at a time", func() bool { return len(w.deliveries) == 0 })
		if i == 2 {
			d.end(protocol.Failed)
			d = w.next()
			equal(s, "message", string(d.Data), "2")
			equal(s, "attempt", d.attempt(), 2)
		}
		d.end(protocol.Acknowledged)
	}
	s.settled(observerQueue(topic, "a"), 0)
}

// groupField: a field of the payload names the group. Those without it are a
// group of their own.
func (s *suite) groupField() {
	topic := s.topic()
	w := s.worker(tuned(topic, "a", `{"type":"fifo","message_group_field":"session"}`))
	for i, session := range []string{`"x"`, `"x"`, `"y"`, `7`, `"7"`, `7.0`, `null`, `{}`} {
		s.publishTopic(topic, []byte(fmt.Sprintf(`{"session":%s,"n":%d}`, session, i)))
	}
	s.publishTopic(topic, []byte(`not JSON`))
	first := map[string]delivery{}
	for range 4 { // of x, y, 7, and of those without
		d := w.next()
		first[string(d.Data)] = d
	}
	s.stays("one of each group", func() bool { return len(w.deliveries) == 0 })
	for _, n := range []int{0, 2, 3, 6} {
		session := map[int]string{0: `"x"`, 2: `"y"`, 3: `7`, 6: `null`}[n]
		if _, ok := first[fmt.Sprintf(`{"session":%s,"n":%d}`, session, n)]; !ok {
			s.Errorf("message %d is not among the first of the groups: %v", n, first)
		}
	}
	for _, d := range first {
		d.end(protocol.Acknowledged)
	}
	for range 9 - len(first) {
		w.next().end(protocol.Acknowledged)
	}
	s.settled(observerQueue(topic, "a"), 0)
}

// groupFieldKept: the group is kept with the message, over failures, dead
// letters and an observer that is away.
func (s *suite) groupFieldKept() {
	topic := s.topic()
	spec := tuned(topic, "a", `{"type":"fifo","message_group_field":"g","maxRetries":2,"backoffDelayMs":1}`)
	spec.BackoffMs = 0
	s.worker(spec).bye()
	publish := func(g string, n int) { s.publishTopic(topic, []byte(fmt.Sprintf(`{"g":%q,"n":%d}`, g, n))) }
	publish("a", 0)
	publish("a", 1)
	publish("b", 2)
	w := s.worker(spec)
	of := map[string]delivery{}
	for range 2 {
		d := w.next()
		of[string(d.Data)] = d
	}
	s.stays("one of each group", func() bool { return len(w.deliveries) == 0 })
	a, b := of[`{"g":"a","n":0}`], of[`{"g":"b","n":2}`]
	a.end(protocol.Rejected)
	again := w.next()
	equal(s, "after the dead letter", string(again.Data), `{"g":"a","n":1}`)
	queue := observerQueue(topic, "a")
	s.eventually("the dead letter", func() bool { return s.queueNamed(queue).Dead == 1 })
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: queue}), 1)
	s.eventually("the redriven letter", func() bool { return s.queueNamed(queue).Ready == 1 })
	s.stays("it waits for its group", func() bool { return len(w.deliveries) == 0 })
	again.end(protocol.Acknowledged)
	d := w.next()
	equal(s, "redriven", string(d.Data), `{"g":"a","n":0}`)
	d.end(protocol.Acknowledged)
	b.end(protocol.Acknowledged)
	s.settled(queue, 0)
}

// initialDelay: delaySeconds puts the first delivery off, and no other; others
// of the topic have theirs at once.
func (s *suite) initialDelay() {
	topic := s.topic()
	spec := tuned(topic, "slow", `{"delaySeconds":1.5,"backoffDelayMs":1}`)
	spec.BackoffMs = 0
	slow, fast := s.worker(spec), s.worker(observe(topic, "fast"))
	began := time.Now()
	s.publishTopic(topic, []byte("x"))
	fast.next().end(protocol.Acknowledged)
	d := slow.next()
	if waited := d.arrived.Sub(began); waited < 1500*time.Millisecond {
		s.Errorf("delivered after %v, before its delay", waited)
	}
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Failed)
	d = slow.next()
	equal(s, "attempt", d.attempt(), 2)
	d.end(protocol.Acknowledged)
	s.settled(observerQueue(topic, "slow"), 0)
}

// delayedOrder: a delay of the first delivery keeps the order of publishing.
func (s *suite) delayedOrder() {
	topic := s.topic()
	w := s.worker(tuned(topic, "a", `{"type":"fifo","delaySeconds":0.5}`))
	const messages = 200
	for i := range messages {
		s.publishTopic(topic, []byte(strconv.Itoa(i)))
	}
	for i := range messages {
		d := w.next()
		equal(s, "message", string(d.Data), strconv.Itoa(i))
		d.end(protocol.Acknowledged)
	}
	s.settled(observerQueue(topic, "a"), 0)
}

// backoffTypes: the delay between two tries stays, or grows by itself. What is
// measured is that no try is early.
func (s *suite) backoffTypes() {
	if s.oneDelay() {
		return // "wishes" has the refusal
	}
	for kind, delays := range map[string][]int{
		"fixed": {200, 200, 200}, "linear": {200, 400, 600}, "exponential": {200, 400, 800},
	} {
		topic := s.topic()
		spec := tuned(topic, kind, fmt.Sprintf(`{"backoffType":%q,"backoffDelayMs":200,"maxRetries":4}`, kind))
		spec.BackoffMs = 0
		w := s.worker(spec)
		s.publishTopic(topic, nil)
		d := w.next()
		for _, delay := range delays {
			began := time.Now()
			d.end(protocol.Failed)
			d = w.next()
			if waited := d.arrived.Sub(began); waited.Milliseconds() < int64(delay) {
				s.Errorf("%s: try %d came after %v, before its delay of %d ms", kind, d.attempt(), waited, delay)
			}
		}
		d.end(protocol.Acknowledged)
	}
}

// visibility: a delivery that is not answered within visibilityTimeout has
// failed, and is given to another.
func (s *suite) visibility() {
	topic := s.topic()
	w := s.worker(tuned(topic, "@g", `{"visibilityTimeout":0.3}`))
	began := time.Now()
	s.publishTopic(topic, []byte("x"))
	first := w.next()
	equal(s, "time limit", first.Header.Get(protocol.HeaderTimeout), "300")
	other := s.worker(tuned(topic, "@g", `{"visibilityTimeout":0.3}`))
	var second delivery
	select {
	case second = <-w.deliveries:
	case second = <-other.deliveries:
	case <-s.guarded().Done():
		s.Fatal("it is given to nobody")
	}
	if waited := second.arrived.Sub(began); waited < 300*time.Millisecond {
		s.Errorf("given to another after %v", waited)
	}
	equal(s, "attempt", second.attempt(), 2)
	second.end(protocol.Acknowledged)
	first.end(protocol.Acknowledged) // it is too late
	q := s.settled(groupQueue(topic, "g"), 0)
	equal(s, "failed", q.Counters[protocol.CountFailed], 1)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 1)
}

// pausedObserver: a concurrency of 0 delivers nothing until it is changed.
func (s *suite) pausedObserver() {
	topic := s.topic()
	spec := tuned(topic, "a", `{"concurrency":0}`)
	w := s.worker(spec)
	for range 5 {
		s.publishTopic(topic, nil)
	}
	s.eventually("a backlog", func() bool { return s.queueNamed(observerQueue(topic, "a")).Ready == 5 })
	s.stays("nothing delivered", func() bool { return len(w.deliveries) == 0 })
	w.hello(tuned(topic, "a", `{"concurrency":2}`))
	for range 5 {
		d := w.next()
		if n := s.queueNamed(observerQueue(topic, "a")).InFlight; n > 2 {
			s.Errorf("%d at once", n)
		}
		d.end(protocol.Acknowledged)
	}
	s.settled(observerQueue(topic, "a"), 0)
}

// observedPriority: maxPriority makes an observer's queue one with priorities.
func (s *suite) observedPriority() {
	if !s.Capabilities.Priorities {
		return // "priority" has what is said of it
	}
	topic := s.topic()
	spec := tuned(topic, "a", `{"maxPriority":9,"concurrency":1}`)
	s.worker(spec).bye()
	for _, p := range []string{"0", "3", "9", "200", "3"} {
		s.publishTopic(topic, []byte(p), protocol.HeaderPriority, p)
	}
	w := s.worker(spec)
	for _, want := range []string{"9", "200", "3", "3", "0"} {
		d := w.next()
		equal(s, "message", string(d.Data), want)
		d.end(protocol.Acknowledged)
	}
}

// filtersOverRestart: filters, delays and groups hold for what was published
// before a restart of the mesh and after it.
func (s *suite) filtersOverRestart() {
	topic := s.topic()
	spec := tuned(topic, "a", `{"type":"fifo","message_group_field":"g","concurrency":0}`)
	spec.Filters = json.RawMessage(`{"input.g":{"$ne":"x"}}`)
	w := s.worker(spec)
	publish := func(g string, n int) { s.publishTopic(topic, []byte(fmt.Sprintf(`{"g":%q,"n":%d}`, g, n))) }
	publish("a", 0)
	publish("x", 1)
	publish("a", 2)
	publish("b", 3)
	s.Restart(s.T)
	publish("x", 4)
	publish("b", 5)
	spec.QueueConfig = json.RawMessage(`{"type":"fifo","message_group_field":"g"}`)
	w.hello(spec)
	last, seen := map[string]int{}, 0
	for seen < 4 {
		d := w.next()
		var m struct {
			G string `json:"g"`
			N int    `json:"n"`
		}
		if err := json.Unmarshal(d.Data, &m); err != nil || m.G == "x" {
			s.Errorf("delivered: %s, %v", d.Data, err)
		}
		if before, ok := last[m.G]; ok && before > m.N {
			s.Errorf("%d of group %s after %d", m.N, m.G, before)
		}
		last[m.G] = m.N
		seen++
		d.end(protocol.Acknowledged)
	}
	s.balanced(observerQueue(topic, "a"), 6, 4, 2)
}
