package brokertest

import (
	"bytes"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// oneConsumer: a message goes to one of its queue's consumers.
func (s *suite) oneConsumer() {
	handled := make(chan string, 1000)
	for range 3 {
		s.worker(s.on("r")).each(func(d delivery) protocol.Outcome {
			handled <- d.id()
			return protocol.Acknowledged
		})
	}
	const n = 300
	for range n {
		s.publish("r", []byte("x"))
	}
	q := s.awaitEmpty("r", 0)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], n)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], n)
	seen := map[string]bool{}
	for range n {
		id := <-handled
		if seen[id] {
			s.Errorf("message %s was handled twice", id)
		}
		seen[id] = true
	}
}

// acknowledged: settlement follows the reply and not the delivery.
func (s *suite) acknowledged() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	d := w.next()
	s.await("r", "a delivery in flight", func(q protocol.QueueInfo) bool { return q.InFlight == 1 && q.Ready == 0 })
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 1)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
}

// plainReplies: a reply says what it means without our header too.
func (s *suite) plainReplies() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	w.next().reply(&nats.Msg{Data: []byte("a result")})
	equal(s, "acknowledged", s.awaitEmpty("r", 0).Counters[protocol.CountAcknowledged], 1)

	s.publish("r", []byte("y"))
	for range 3 {
		w.next().reply(&nats.Msg{Header: nats.Header{
			protocol.HeaderServiceError: {"no such row"}, protocol.HeaderServiceErrorCode: {"404"},
		}})
	}
	equal(s, "error", s.awaitLetters("r", 1)[0].Error, "no such row")
}

// failed: three deliveries by default, each knowing its attempt, then a dead
// letter.
func (s *suite) failed() {
	w := s.worker(s.on("r"))
	ack := s.publish("r", []byte("x"))
	for attempt := 1; attempt <= 3; attempt++ {
		d := w.next()
		equal(s, "attempt", d.attempt(), attempt)
		equal(s, "message id", d.id(), ack.MessageID)
		equal(s, "tries", d.Header.Get(protocol.HeaderMaxRetries), "3")
		d.endWith(protocol.Failed, "no luck")
	}
	letter := s.awaitLetters("r", 1)[0]
	equal(s, "attempts", letter.Attempts, 3)
	equal(s, "reason", letter.Reason, protocol.ReasonFailed)
	q := s.awaitEmpty("r", 1)
	equal(s, "failed", q.Counters[protocol.CountFailed], 3)
	equal(s, "retried", q.Counters[protocol.CountRetried], 2)
	equal(s, "dead-lettered", q.Counters[protocol.CountDeadLettered], 1)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 3)
}

// budget: max_retries is the number of failed deliveries.
func (s *suite) budget() {
	for _, n := range []int{1, 2, 3, 5} {
		route := "r" + string(rune('0'+n))
		spec := s.on(route)
		spec.MaxRetries = n
		w := s.worker(spec)
		s.publish(route, []byte("x"))
		for attempt := 1; attempt <= n; attempt++ {
			d := w.next()
			equal(s, "attempt", d.attempt(), attempt)
			d.end(protocol.Failed)
		}
		equal(s, "attempts", s.awaitLetters(route, 1)[0].Attempts, uint32(n))
		equal(s, "delivered", s.awaitEmpty(route, 1).Counters[protocol.CountDelivered], uint64(n))
	}
}

// backoff: the delay doubles, and nothing comes early.
func (s *suite) backoff() {
	if s.oneDelay() {
		return // "wishes" has the refusal
	}
	const base = 100 * time.Millisecond
	spec := s.on("r")
	spec.MaxRetries, spec.BackoffMs = 4, base.Milliseconds()
	w := s.worker(spec)
	s.publish("r", []byte("x"))
	var ended time.Time
	for attempt := 1; attempt <= 4; attempt++ {
		d := w.next()
		if attempt > 1 {
			if want, gap := base<<(attempt-2), d.arrived.Sub(ended); gap < want {
				s.Errorf("attempt %d came after %v, before its %v", attempt, gap, want)
			}
		}
		ended = time.Now()
		d.end(protocol.Failed)
	}
	s.awaitEmpty("r", 1)
}

// retryAfter: a worker may ask for a longer delay, and nothing comes before it.
func (s *suite) retryAfter() {
	const asked = 400 * time.Millisecond
	fifo := s.on("fifo")
	fifo.Type = protocol.TypeFIFO
	for _, spec := range []protocol.SubscriptionSpec{s.on("r"), fifo} {
		spec.BackoffMs = 1
		w := s.worker(spec)
		s.publish(spec.Route, []byte("x"))
		first := w.next()
		ended := time.Now()
		first.reply(&nats.Msg{Header: nats.Header{
			protocol.HeaderOutcome: {string(protocol.Failed)}, protocol.HeaderRetryAfter: {"400"},
		}})
		again := w.next()
		equal(s, "attempt", again.attempt(), 2)
		if gap := again.arrived.Sub(ended); gap < asked {
			s.Errorf("on %s attempt 2 came after %v, before the %v that were asked for", spec.Route, gap, asked)
		}
		again.end(protocol.Acknowledged)
		s.awaitEmpty(spec.Route, 0)
	}
}

// rejected: one delivery, one dead letter.
func (s *suite) rejected() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("bad"))
	w.next().endWith(protocol.Rejected, "it has no head")
	letter := s.awaitLetters("r", 1)[0]
	equal(s, "reason", letter.Reason, protocol.ReasonRejected)
	equal(s, "error", letter.Error, "it has no head")
	equal(s, "attempts", letter.Attempts, 1)
	equal(s, "payload", string(letter.Payload), "bad")
	q := s.awaitEmpty("r", 1)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 1)
	equal(s, "rejected", q.Counters[protocol.CountRejected], 1)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
}

// incomplete: what is no outcome costs nothing and brings the message back.
func (s *suite) incomplete() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	outcomes := []protocol.Outcome{protocol.Pending, protocol.Delivered, protocol.Expired, "whatever"}
	for _, o := range outcomes {
		d := w.next()
		equal(s, "attempt", d.attempt(), 1)
		d.end(o)
	}
	d := w.next()
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "incomplete", q.Counters[protocol.CountIncomplete], uint64(len(outcomes)))
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
}

// notForWorkers: how a delivery ended without an answer is not a worker's to
// say, nor does a text without end reach the retry service.
func (s *suite) notForWorkers() {
	w := s.worker(s.on("r"))
	outcomes := []protocol.Outcome{protocol.Timeout, protocol.Vanished, protocol.Outcome(strings.Repeat("x", 64<<10))}
	for _, o := range outcomes {
		s.publish("r", []byte("x"))
		w.next().end(o)
		d := w.next()
		equal(s, "attempt", d.attempt(), 1)
		d.end(protocol.Acknowledged)
	}
	q := s.awaitEmpty("r", 0)
	equal(s, "incomplete", q.Counters[protocol.CountIncomplete], uint64(len(outcomes)))
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
	equal(s, "vanished", q.Counters[protocol.CountVanished], 0)
}

// incompleteForEver: but not without end, nor hot. Its pauses double up to half
// a minute, so this test looks at the first of them only.
func (s *suite) incompleteForEver() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	var ended time.Time
	for n := range 5 {
		d := w.next()
		if pause := 100 * time.Millisecond << max(n-1, 0); n > 0 && d.arrived.Sub(ended) < pause {
			s.Errorf("delivery %d came after %v, want at least %v", n+1, d.arrived.Sub(ended), pause)
		}
		ended = time.Now()
		d.end(protocol.Pending)
	}
}

// cancelled: handed back unspent, to whoever is there, also if that is the one
// who gave it.
func (s *suite) cancelled() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	w.next().end(protocol.Cancelled)
	d := w.next()
	equal(s, "attempt", d.attempt(), 1)
	other := s.worker(s.on("r"))
	d.end(protocol.Cancelled)
	w.bye()
	d = other.next()
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
	equal(s, "incomplete", q.Counters[protocol.CountIncomplete], 0)
}

// timeout: no answer in time is a failure; the answer that comes later counts
// for nothing.
func (s *suite) timeout() {
	spec := s.on("r")
	spec.TimeoutMs, spec.MaxRetries = 200, 2
	w := s.worker(spec)
	began := time.Now()
	s.publish("r", []byte("x"))
	first := w.next()
	equal(s, "time limit", first.Header.Get(protocol.HeaderTimeout), "200")
	second := w.next()
	equal(s, "attempt", second.attempt(), 2)
	if waited := second.arrived.Sub(began); waited < 200*time.Millisecond {
		s.Errorf("the second attempt came %v after the publish, before the first's time limit", waited)
	}
	first.end(protocol.Acknowledged)
	s.await("r", "a superseded answer", func(q protocol.QueueInfo) bool { return q.InFlight == 1 || q.Dead == 1 })
	letter := s.awaitLetters("r", 1)[0] // the second gets no answer at all
	equal(s, "reason", letter.Reason, protocol.ReasonTimeout)
	equal(s, "attempts", letter.Attempts, 2)
	q := s.awaitEmpty("r", 1)
	equal(s, "failed", q.Counters[protocol.CountFailed], 2)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 0)
}

// nobodyThere: a registered worker that does not listen costs nothing; the
// message waits until it does.
func (s *suite) nobodyThere() {
	w := s.unregistered()
	r := ask[protocol.Registered](s, protocol.SubjectHello, protocol.Hello{
		WorkerID: w.id, Name: w.name, Revision: 1, Subscriptions: []protocol.SubscriptionSpec{s.on("r")},
	})
	s.await("r", "the consumer", func(q protocol.QueueInfo) bool { return q.Consumers == 1 })
	s.publish("r", []byte("x"))
	s.stays("the message there and unspent", func() bool { return len(w.deliveries) == 0 })
	w.listen(r.Subscriptions[0])
	d := w.next()
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
	equal(s, "vanished", q.Counters[protocol.CountVanished], 0)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 1)
}

// lateListener: what is published before anybody listens waits, in order.
func (s *suite) lateListener() {
	for _, text := range []string{"1", "2", "3"} {
		s.publish("r", []byte(text))
	}
	s.wantReady(scope.ScopedName(s.execution, "r"), 3)
	spec := s.on("r")
	spec.Concurrency = new(1)
	w := s.worker(spec)
	for _, text := range []string{"1", "2", "3"} {
		d := w.next()
		equal(s, "payload", string(d.Data), text)
		d.end(protocol.Acknowledged)
	}
	s.awaitEmpty("r", 0)
}

// vanished: a worker that is killed in mid-handler costs no attempt.
func (s *suite) vanished() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	w.next()
	w.die()
	other := s.worker(s.on("r"))
	d := other.next()
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
	equal(s, "vanished", q.Counters[protocol.CountVanished], 1)
}

// firstOutcome: of two answers to one delivery the first counts, and one for a
// delivery that was never made counts for nothing.
func (s *suite) firstOutcome() {
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	d := w.next()
	forged := bytes.Repeat([]byte("A"), len(d.Reply)-len(protocol.SubjectOutcome)-len("router-00."))
	lane, _, _ := protocol.SplitOutcome(d.Reply)
	if err := w.nc.Publish(protocol.SubjectOutcome+lane+"."+string(forged), nil); err != nil {
		s.Fatal(err)
	}
	d.end(protocol.Rejected)
	d.end(protocol.Acknowledged)
	d.end(protocol.Failed)
	s.awaitLetters("r", 1)
	q := s.awaitEmpty("r", 1)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 1)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 0)
}
