package brokertest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// freshFlow: as many failing messages as the consumer takes at once do not
// hold up the others.
func (s *suite) freshFlow() {
	spec := s.on("r")
	spec.Concurrency, spec.BackoffMs, spec.MaxRetries = new(4), 3_600_000, 5
	w := s.worker(spec)
	for range 8 {
		s.publish("r", []byte("fails"))
	}
	w.each(func(d delivery) protocol.Outcome {
		if string(d.Data) == "fails" {
			return protocol.Failed
		}
		return protocol.Acknowledged
	})
	for range 100 {
		s.publish("r", []byte("fresh"))
	}
	q := s.await("r", "fresh messages to be handled", func(q protocol.QueueInfo) bool {
		return q.Counters[protocol.CountAcknowledged] == 100 && q.Waiting == 8
	})
	equal(s, "dead", q.Dead, 0)
}

// isolation: executions with awkward ids never see each other's messages, on
// any path.
func (s *suite) isolation() {
	base := "i" + nuid.Next()
	ids := []string{base, base + "-", base + "_1", base[:len(base)-1], strings.ToUpper(base), "0" + base, pad(base)}
	var crossed atomic.Int64
	for _, execution := range ids {
		spec := s.on("tasks")
		spec.Execution, spec.MaxRetries = execution, 2
		s.worker(spec).each(func(d delivery) protocol.Outcome {
			owner, wish, _ := strings.Cut(string(d.Data), "|")
			if owner != execution {
				crossed.Add(1)
			}
			switch {
			case wish == "retry" && d.attempt() == 1:
				return protocol.Failed
			case wish == "reject", wish == "redrive" && d.Header.Get(protocol.HeaderGeneration) == "":
				return protocol.Rejected
			default:
				return protocol.Acknowledged
			}
		})
	}
	const rounds = 25
	wishes := []string{"ok", "retry", "reject", "redrive"}
	all := make([]*nats.Msg, 0, rounds*len(ids)*len(wishes))
	for range rounds {
		for _, execution := range ids {
			for _, wish := range wishes {
				all = append(all, &nats.Msg{Subject: protocol.PublishQueueSubject(execution, "tasks"), Data: []byte(execution + "|" + wish)})
			}
		}
	}
	s.publishAll(all)
	for _, execution := range ids {
		s.settled(scope.ScopedName(execution, "tasks"), 2*rounds)
		for _, letter := range s.letters(execution, "tasks") {
			if !strings.HasPrefix(string(letter.Payload), execution+"|") {
				s.Errorf("%s has a dead letter of another: %q", execution, letter.Payload)
			}
		}
	}
	for _, execution := range ids { // each after the other, so that a redrive that reached too far would show
		queue := scope.ScopedName(execution, "tasks")
		equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: queue}), 2*rounds)
		q := s.settled(queue, rounds)
		equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 3*rounds)
		equal(s, "failed", q.Counters[protocol.CountFailed], rounds)
		equal(s, "rejected", q.Counters[protocol.CountRejected], 3*rounds)
		equal(s, "published", q.Counters[protocol.CountPublished], rounds*uint64(len(wishes)))
	}
	equal(s, "messages that crossed", crossed.Load(), 0)
}

func pad(id string) string { return (id + sixtyFour)[:64] }

// concurrency: never more at once than the consumers ask for, also after one
// of them changes its mind.
func (s *suite) concurrency() {
	var running, most atomic.Int64
	release := make(chan struct{})
	spec := s.on("r")
	spec.Concurrency = new(3)
	w := s.worker(spec)
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			select {
			case d := <-w.deliveries:
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				handlers.Go(func() {
					<-release
					running.Add(-1)
					d.end(protocol.Acknowledged)
				})
			case <-w.stopped:
				return
			}
		}
	})
	for range 40 {
		s.publish("r", []byte("x"))
	}
	s.eventually("three handlers", func() bool { return running.Load() == 3 })
	s.stays("three at once", func() bool { return running.Load() == 3 })
	spec.Concurrency = new(5)
	w.hello(spec)
	s.eventually("five handlers", func() bool { return running.Load() == 5 })
	s.stays("five at once", func() bool { return running.Load() == 5 })
	close(release)
	s.awaitEmpty("r", 0)
	if most.Load() > 5 {
		s.Errorf("%d ran at once, want at most 5", most.Load())
	}
	w.stop()
	handlers.Wait()
}

// paused: a consumer that takes none leaves the messages where they are.
func (s *suite) paused() {
	spec := s.on("r")
	spec.Concurrency = new(0)
	w := s.worker(spec)
	s.await("r", "the consumer", func(q protocol.QueueInfo) bool { return q.Consumers == 1 })
	s.publish("r", []byte("x"))
	s.stays("nothing delivered", func() bool { return len(w.deliveries) == 0 })
	spec.Concurrency = new(1)
	w.hello(spec)
	w.next().end(protocol.Acknowledged)
	s.awaitEmpty("r", 0)
}

// fairness: a queue with few messages does not wait for one with many.
func (s *suite) fairness() {
	for range 2000 {
		s.tell("many")
	}
	s.awaitPublished("many", 2000)
	for range 10 {
		s.publish("few", []byte("x"))
	}
	specs := []protocol.SubscriptionSpec{s.on("many"), s.on("few")}
	for i := range specs {
		specs[i].Concurrency = new(1)
	}
	w := s.worker(specs...)
	first := []delivery{w.next(), w.next()} // one of each: both are consumed
	for _, d := range first {
		d.end(protocol.Acknowledged)
	}
	few, many := 1, 1
	for few < 10 {
		d := w.next()
		if strings.HasSuffix(d.Subject, w.ids["few"]) {
			few++
		} else {
			many++
		}
		d.end(protocol.Acknowledged)
	}
	if many > 200 {
		s.Errorf("10 messages of one queue waited for %d of another", many)
	}
}

// tell publishes without waiting for the answer.
func (s *suite) tell(route string) {
	s.Helper()
	if err := s.nc.Publish(protocol.PublishQueueSubject(s.execution, route), []byte("x")); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) awaitPublished(route string, n uint64) {
	s.Helper()
	s.await(route, "publishes to be stored", func(q protocol.QueueInfo) bool { return q.Counters[protocol.CountPublished] == n })
}

// order: one at a time, a queue is first in, first out; what comes back keeps
// its place.
func (s *suite) order() {
	spec := s.on("r")
	spec.Concurrency = new(1)
	for i := range 20 {
		s.publish("r", []byte(strconv.Itoa(i)))
	}
	w := s.worker(spec)
	for i := range 20 {
		d := w.next()
		if i == 5 {
			d.end(protocol.Cancelled)
			d = w.next()
		}
		equal(s, "message", string(d.Data), strconv.Itoa(i))
		d.end(protocol.Acknowledged)
	}
	s.awaitEmpty("r", 0)
}

// budgetOverRestart: what was spent stays spent, what was not is not.
func (s *suite) budgetOverRestart() {
	s.unhurried("a retry that waits over a restart", 2*time.Second, s.spentOverRestarts)
}

func (s *suite) spentOverRestarts(route string, wait time.Duration) bool {
	s.Helper()
	spec := s.on(route)
	spec.MaxRetries, spec.BackoffMs = 3, wait.Milliseconds()
	w := s.worker(spec)
	s.publish(route, []byte("x"))
	for attempt := 1; attempt <= 3; attempt++ {
		d := w.next()
		equal(s, "attempt", d.attempt(), attempt)
		d.end(protocol.Failed)
		if attempt == 3 {
			break
		}
		if !s.meanwhile(w, route, "the retry to wait", func(q protocol.QueueInfo) bool { return q.Waiting == 1 }) {
			return false
		}
		s.Restart(s.T)
	}
	letter := s.awaitLetters(route, 1)[0]
	equal(s, "attempts", letter.Attempts, 3)
	equal(s, "failed", s.awaitEmpty(route, 1).Counters[protocol.CountFailed], 3)
	return true
}

// backlogOverRestart: what was answered is there.
func (s *suite) backlogOverRestart() {
	for i := range 50 {
		s.publish("r", fmt.Append(nil, i))
	}
	s.Restart(s.T)
	w := s.worker(s.on("r"))
	w.each(func(delivery) protocol.Outcome { return protocol.Acknowledged })
	q := s.awaitEmpty("r", 0)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 50)
}

// acknowledgedOverRestart: what is done is done, with nothing of it left.
func (s *suite) acknowledgedOverRestart() {
	const n = 20
	w := s.worker(s.on("r"))
	w.each(func(delivery) protocol.Outcome { return protocol.Acknowledged })
	for range n {
		s.publish("r", []byte("x"))
	}
	s.awaitEmpty("r", 0)
	s.Restart(s.T)
	s.await("r", "the consumer", func(q protocol.QueueInfo) bool { return q.Consumers == 1 })
	s.publish("r", []byte("the last"))
	s.await("r", "the last to be handled", func(q protocol.QueueInfo) bool { return q.Counters[protocol.CountAcknowledged] == n+1 })
	equal(s, "delivered", s.awaitEmpty("r", 0).Counters[protocol.CountDelivered], n+1)
}

// longHandlerOverRestart: a handler that runs meanwhile runs once, though others
// are idle, and its outcome counts; where deliveries end with their router it
// runs again.
func (s *suite) longHandlerOverRestart() {
	if !s.Capabilities.Resumes {
		s.heldDuring(s.Restart)
		return
	}
	const idle = 5
	all := make(chan delivery, 100)
	for range 1 + idle {
		s.worker(s.on("r")).into(all)
	}
	s.await("r", "the consumers", func(q protocol.QueueInfo) bool { return q.Consumers == 1+idle })
	s.publish("r", []byte("long"))
	long := s.next(all)
	s.Restart(s.T)
	s.publish("r", []byte("fresh")) // does not wait for what was withheld
	fresh := s.next(all)
	equal(s, "message", string(fresh.Data), "fresh")
	fresh.end(protocol.Acknowledged)
	s.await("r", "the handler to be known again", func(q protocol.QueueInfo) bool { return q.InFlight == 1 && q.Ready == 0 })
	s.stays("no other handler of it", func() bool { return len(all) == 0 })
	long.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 2)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 2)
	equal(s, "deliveries more", len(all), 0)
}
