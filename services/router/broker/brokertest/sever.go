package brokertest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// severed: a connection that is lost costs no message and no try: everything
// that was answered is handled, without an operator.
func (s *suite) severed() {
	w := s.worker(s.on("r"))
	var mu sync.Mutex
	handled := map[string]int{}
	w.each(func(d delivery) protocol.Outcome {
		mu.Lock()
		defer mu.Unlock()
		handled[d.id()] = max(handled[d.id()], d.attempt())
		return protocol.Acknowledged
	})
	publishing := s.keepPublishing("r")
	publishing.more(50)
	s.Sever(s.T)
	publishing.more(50)
	stored := publishing.end()
	s.eventually("everything that was answered to be handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range stored {
			if handled[id] == 0 {
				return false
			}
		}
		return true
	})
	q := s.awaitEmpty("r", 0)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
	mu.Lock()
	defer mu.Unlock()
	for id, attempt := range handled {
		equal(s, "attempt of "+id, attempt, 1)
	}
}

// publishing publishes without a pause until it is told to end.
type publishing struct {
	s      *suite
	ending sync.WaitGroup
	stop   func()
	stored chan string

	ids []string
}

func (s *suite) keepPublishing(route string) *publishing {
	ctx, cancel := context.WithCancel(s.Context())
	p := &publishing{s: s, stored: make(chan string, 1<<16)}
	nc := s.connect()
	p.ending.Go(func() {
		for ctx.Err() == nil {
			p.publish(ctx, nc, route)
		}
	})
	p.stop = func() {
		cancel()
		p.ending.Wait()
	}
	s.Cleanup(p.stop)
	return p
}

// publish notes a message that is stored, and leaves the others.
func (p *publishing) publish(ctx context.Context, nc *nats.Conn, route string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answer, err := nc.RequestWithContext(ctx, protocol.PublishQueueSubject(p.s.execution, route), []byte("x"))
	if err != nil || protocol.ParseErrorBody(answer.Data) != nil {
		return
	}
	var ack protocol.PublishAck
	if err := json.Unmarshal(answer.Data, &ack); err == nil {
		p.stored <- ack.MessageID
	}
}

// more waits until n more are stored.
func (p *publishing) more(n int) {
	p.s.Helper()
	for range n {
		select {
		case id := <-p.stored:
			p.ids = append(p.ids, id)
		case <-time.After(guard):
			p.s.Fatalf("waited %v for a publish to be stored", guard)
		}
	}
}

// end returns the ids of all that were stored.
func (p *publishing) end() []string {
	p.stop()
	p.more(len(p.stored))
	return p.ids
}

// heldWhileSevered: a message in a worker's hands is not lost with the
// connection, nor is a try of it spent.
func (s *suite) heldWhileSevered() {
	if !s.Capabilities.Resumes {
		s.heldDuring(s.Sever)
		return
	}
	w := s.worker(s.on("r"))
	s.publish("r", []byte("x"))
	d := w.next()
	s.Sever(s.T)
	s.await("r", "the router to be back", func(q protocol.QueueInfo) bool { return q.InFlight == 1 })
	d.end(protocol.Acknowledged)
	q := s.await("r", "the outcome to count", func(q protocol.QueueInfo) bool { return q.Counters[protocol.CountAcknowledged] == 1 })
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 1)
	s.publish("r", []byte("y"))
	w.next().end(protocol.Acknowledged)
}

// heldDuring: where a delivery ends with its connection the message is delivered
// again, at no cost, and the first handler's outcome is superseded.
func (s *suite) heldDuring(fault func(t *testing.T)) {
	s.Helper()
	w := s.worker(s.on("r"))
	ack := s.publish("r", []byte("x"))
	first := w.next()
	fault(s.T)
	again := w.next()
	equal(s, "message", again.id(), ack.MessageID)
	equal(s, "attempt", again.attempt(), 1)
	before := s.counted(protocol.CountSuperseded)
	first.end(protocol.Rejected)
	s.eventually("the first outcome to be superseded", func() bool { return s.counted(protocol.CountSuperseded) > before })
	again.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "acknowledged", q.Counters[protocol.CountAcknowledged], 1)
	equal(s, "rejected", q.Counters[protocol.CountRejected], 0)
	equal(s, "failed", q.Counters[protocol.CountFailed], 0)
}

// endedWhileSevered: what a handler said before the connection was lost counts, though
// nothing was decided of it yet. Nobody is given the same try again, and order is kept.
func (s *suite) endedWhileSevered() {
	w := s.worker(s.on("r"), s.fifo("f"))
	decide := s.Undecided(s.T)
	s.publish("r", []byte("fails"))
	s.publish("f", []byte("fails"), protocol.HeaderGroup, "a")
	s.publish("f", []byte("fails"), protocol.HeaderGroup, "b")
	for range 3 {
		d := w.next()
		if d.Header.Get(protocol.HeaderGroup) == "b" {
			d.end(protocol.Rejected)
			continue
		}
		d.end(protocol.Failed)
	}
	s.publish("f", []byte("follows"), protocol.HeaderGroup, "a")
	for _, route := range []string{"r", "f"} {
		s.eventually("the answers to be there", func() bool {
			all := s.queues(protocol.SubjectQueues, protocol.QueuesRequest{Queue: scope.ScopedName(s.execution, route)})
			return len(all) == 1 && all[0].InFlight == 0
		})
	}
	s.Sever(s.T)
	decide()
	for range 3 {
		d := w.next()
		want := map[string]int{"fails": 2, "follows": 1}[string(d.Data)]
		equal(s, "attempt of what "+string(d.Data), d.attempt(), want)
		d.end(protocol.Acknowledged)
	}
	q := s.awaitEmpty("r", 0)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 2)
	q = s.awaitEmpty("f", 1)
	equal(s, "delivered in order", q.Counters[protocol.CountDelivered], 4)
}
