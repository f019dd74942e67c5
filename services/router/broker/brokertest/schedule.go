package brokertest

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// scheduled: a message is delivered at its time and not before, at its first
// attempt, with all its tries and without the headers that scheduled it.
func (s *suite) scheduled() {
	if !s.Capabilities.Schedules {
		s.refuses(protocol.HeaderDelayMs, "400")
		return
	}
	w := s.worker(s.on("r"))
	for _, c := range []struct {
		name, value string
		due         time.Time
	}{
		{protocol.HeaderDelayMs, "400", time.Now().Add(400 * time.Millisecond)},
		{"waybill-delay-ms", "1", time.Now().Add(time.Millisecond)},
		{protocol.HeaderDeliverAt, time.Now().Add(300 * time.Millisecond).Format(time.RFC3339Nano), time.Now().Add(300*time.Millisecond - time.Microsecond)},
		{protocol.HeaderDeliverAt, strconv.FormatInt(time.Now().Add(300*time.Millisecond).UnixMilli(), 10), time.Now().Add(299 * time.Millisecond)},
	} {
		ack := s.publish("r", []byte(c.name), c.name, c.value, "x-own", "1")
		d := w.next()
		if early := c.due.Sub(d.arrived); early > 0 {
			s.Errorf("%s %s: delivered %v early", c.name, c.value, early)
		}
		equal(s, "message", d.id(), ack.MessageID)
		equal(s, "attempt", d.attempt(), 1)
		equal(s, "own header", d.Header.Get("x-own"), "1")
		equal(s, "header", len(d.Header[c.name]), 0)
		for attempt := 1; attempt <= 3; attempt++ {
			equal(s, "attempt", d.attempt(), attempt)
			d.end(protocol.Failed)
			if attempt < 3 {
				d = w.next()
			}
		}
	}
	for _, letter := range s.awaitLetters("r", 4) {
		equal(s, "attempts", letter.Attempts, 3)
	}
}

// scheduledPast: a time that has passed is now, and so is no delay.
func (s *suite) scheduledPast() {
	w := s.worker(s.on("r"))
	for _, header := range [][2]string{
		{protocol.HeaderDelayMs, "0"}, {protocol.HeaderDeliverAt, "1"}, {protocol.HeaderDeliverAt, "1999-12-31T23:59:59+01:00"},
	} {
		ack := s.publish("r", nil, header[0], header[1])
		d := w.next()
		equal(s, "message", d.id(), ack.MessageID)
		d.end(protocol.Acknowledged)
	}
	s.awaitEmpty("r", 0)
}

// scheduleRefused: what is no time, or too far away, is refused and nothing is
// stored.
func (s *suite) scheduleRefused() {
	ahead := time.Now().Add(protocol.MaxSchedule + time.Hour)
	subject := protocol.PublishQueueSubject(s.execution, "r")
	for _, h := range []nats.Header{
		{protocol.HeaderDelayMs: {"-1"}}, {protocol.HeaderDelayMs: {"+5"}}, {protocol.HeaderDeliverAt: {"+1"}}, {protocol.HeaderDelayMs: {"1.5"}}, {protocol.HeaderDelayMs: {"5s"}}, {protocol.HeaderDelayMs: {""}},
		{protocol.HeaderDelayMs: {"9223372036854775807"}}, {protocol.HeaderDelayMs: {"9999999999999999999"}},
		{protocol.HeaderDeliverAt: {""}}, {protocol.HeaderDeliverAt: {"tomorrow"}}, {protocol.HeaderDeliverAt: {"2030-01-02T03:04:05"}},
		{protocol.HeaderDeliverAt: {"2030-01-02"}}, {protocol.HeaderDeliverAt: {ahead.Format(time.RFC3339)}},
		{protocol.HeaderDeliverAt: {strconv.FormatInt(ahead.UnixMilli(), 10)}}, {protocol.HeaderDeliverAt: {"9223372036854775807"}},
		{protocol.HeaderDelayMs: {"1"}, protocol.HeaderDeliverAt: {"1"}}, {protocol.HeaderDelayMs: {"1"}, "waybill-delay-MS": {"1"}},
	} {
		if _, refused := s.tryPublish(subject, nil, h); refused == nil || refused.Code != protocol.CodeInvalidArgs {
			s.Errorf("%v: got %v, want %s", h, refused, protocol.CodeInvalidArgs)
		}
	}
	equal(s, "stored", s.queue(s.execution, "r").Counters[protocol.CountPublished], 0)
}

// scheduledOperated: what is scheduled is listed, and can be let go or dropped.
func (s *suite) scheduledOperated() {
	if !s.Capabilities.Schedules {
		s.refuses(protocol.HeaderDelayMs, "3600000")
		return
	}
	queue := scope.ScopedName(s.execution, "r")
	first := s.publish("r", []byte("1"), protocol.HeaderDelayMs, "3600000", protocol.HeaderDedup, "once")
	equal(s, "duplicate", s.publish("r", []byte("1"), protocol.HeaderDelayMs, "3600000", protocol.HeaderDedup, "once").Duplicate, true)
	s.publish("r", []byte("2"), protocol.HeaderDelayMs, strconv.FormatInt((10*365*24*time.Hour).Milliseconds(), 10))
	s.await("r", "both to wait", func(q protocol.QueueInfo) bool { return q.Waiting == 2 && q.Ready+q.Moving == 0 })
	list := ask[protocol.WaitingPage](s, protocol.SubjectWaitingList, protocol.WaitingListRequest{Queue: queue})
	if len(list.Messages) != 2 || list.Messages[0].MessageID != first.MessageID || list.Messages[0].Why != protocol.WaitsForSchedule || list.Messages[0].Attempt != 1 {
		s.Fatalf("the list is %+v", list)
	}
	w := s.worker(s.on("r"))
	equal(s, "released", ask[protocol.WaitingActReply](s, protocol.SubjectWaitingNow, protocol.WaitingActRequest{MessageID: first.MessageID}).Count, 1)
	d := w.next()
	equal(s, "message", d.id(), first.MessageID)
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Acknowledged)
	equal(s, "cancelled", ask[protocol.WaitingActReply](s, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: queue}).Count, 1)
	q := s.awaitEmpty("r", 0)
	equal(s, "discarded", q.Counters[protocol.CountDiscarded], 1)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 1)
}

// scheduledOverRestart: a restart neither loses a schedule nor hurries it.
func (s *suite) scheduledOverRestart() {
	due := time.Now().Add(2 * time.Second)
	if !s.Capabilities.Schedules {
		s.refuses(protocol.HeaderDeliverAt, due.Format(time.RFC3339Nano))
		return
	}
	ack := s.publish("r", []byte("x"), protocol.HeaderDeliverAt, due.Format(time.RFC3339Nano))
	s.Restart(s.T)
	w := s.worker(s.on("r"))
	d := w.next()
	if early := due.Sub(d.arrived); early > 0 {
		s.Errorf("delivered %v early", early)
	}
	equal(s, "message", d.id(), ack.MessageID)
	equal(s, "attempt", d.attempt(), 1)
	d.end(protocol.Acknowledged)
	s.awaitEmpty("r", 0)
}
