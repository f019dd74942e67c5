package brokertest

import (
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// refuses: a publish with such a header is refused by the broker's name, and
// nothing is stored.
func (s *suite) refuses(header, value string) {
	s.Helper()
	_, refused := s.tryPublish(protocol.PublishQueueSubject(s.execution, "r"), []byte("x"), pairs([]string{header, value}))
	if refused == nil || refused.Code != protocol.CodeUnsupported {
		s.Errorf("%s %s: %v, want %s", header, value, refused, protocol.CodeUnsupported)
	}
	equal(s, "stored", s.queue(s.execution, "r").Counters[protocol.CountPublished], 0)
}

// wishes: what a subscription asks for it has, or is refused.
func (s *suite) wishes() {
	c := s.Capabilities
	for what, wish := range map[string]struct {
		granted bool
		change  func(*protocol.SubscriptionSpec)
	}{
		"fifo":    {c.FIFO, func(p *protocol.SubscriptionSpec) { p.Type = protocol.TypeFIFO }},
		"retries": {c.Retries, func(p *protocol.SubscriptionSpec) { p.MaxRetries = 5 }},
		"backoff": {c.Delay.Any(), func(p *protocol.SubscriptionSpec) { p.MaxRetries, p.BackoffMs = 2, 77 }},
		"delay": {c.Schedules, func(p *protocol.SubscriptionSpec) {
			*p = tuned(s.execution+"-"+"t", "late", `{"delaySeconds":1}`)
		}},
		"nothing": {true, func(*protocol.SubscriptionSpec) {}},
	} {
		spec := s.on("r-" + what)
		wish.change(&spec)
		refused := s.unregistered().tryHello(spec)
		if wish.granted && refused != nil || !wish.granted && (refused == nil || refused.Code != protocol.CodeUnsupported) {
			s.Errorf("%s: %v, of a broker that has it: %v", what, refused, wish.granted)
		}
	}
}

// waitingOperated: what waits for its next try is listed with its time and why,
// and can be let go or dropped, wherever it waits.
func (s *suite) waitingOperated() {
	queue := scope.ScopedName(s.execution, "r")
	spec := s.on("r")
	spec.MaxRetries, spec.BackoffMs = 3, 3_600_000
	if !s.Capabilities.Delay.Any() {
		return // "wishes" has the refusal
	}
	w := s.worker(spec)
	first := s.publish("r", []byte("1"), "x-own", "kept").MessageID
	w.next().endWith(protocol.Failed, "no luck")
	s.publish("r", []byte("2"))
	w.next().endWith(protocol.Failed, "none either")
	s.await("r", "both to wait", func(q protocol.QueueInfo) bool { return q.Waiting == 2 && q.Ready+q.Moving+q.InFlight == 0 })
	act := func(subject string, q protocol.WaitingActRequest) int64 {
		return ask[protocol.WaitingActReply](s, subject, q).Count
	}
	if !s.Capabilities.Waiting {
		s.onlyCounts(queue)
		return
	}
	for range 2 { // a look changes nothing
		list := ask[protocol.WaitingPage](s, protocol.SubjectWaitingList, protocol.WaitingListRequest{Queue: queue})
		if len(list.Messages) != 2 || list.Total != 2 {
			s.Fatalf("the list is %+v", list)
		}
		m := list.Messages[0]
		if m.MessageID != first || m.Why != protocol.WaitsForRetry || m.Attempt != 2 || m.Error != "no luck" || m.Route != "r" || m.Due.Sub(m.LastFailure).Hours() != 1 {
			s.Errorf("the first is %+v", m)
		}
	}
	equal(s, "released", act(protocol.SubjectWaitingNow, protocol.WaitingActRequest{MessageID: first, By: "me"}), 1)
	d := w.next()
	equal(s, "message", d.id(), first)
	equal(s, "attempt", d.attempt(), 2)
	equal(s, "own header", d.Header.Get("x-own"), "kept")
	d.end(protocol.Rejected)
	equal(s, "cancelled", act(protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: queue}), 1)
	q := s.awaitEmpty("r", 1)
	equal(s, "discarded", q.Counters[protocol.CountDiscarded], 1)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 3)
	equal(s, "nothing is left to cancel", act(protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: queue}), 0)
}

// onlyCounts: what waits where nobody can look at it is counted, and who wants it
// to go is told so.
func (s *suite) onlyCounts(queue string) {
	s.Helper()
	list := ask[protocol.WaitingPage](s, protocol.SubjectWaitingList, protocol.WaitingListRequest{Queue: queue})
	if len(list.Messages) != 0 || list.Total != 2 {
		s.Errorf("the list is %+v", list)
	}
	for _, subject := range []string{protocol.SubjectWaitingNow, protocol.SubjectWaitingCancel} {
		if _, err := mesh.Request[protocol.WaitingActReply](s.guarded(), s.nc, subject, protocol.WaitingActRequest{Queue: queue}); protocol.CodeOf(err) != protocol.CodeUnsupported {
			s.Errorf("%s: %v, want %s", subject, err, protocol.CodeUnsupported)
		}
	}
}
