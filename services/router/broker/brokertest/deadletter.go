package brokertest

import (
	"bytes"
	"maps"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// hostile are headers that are allowed and that somebody might mangle.
var hostile = []string{
	"x-correlation-id", "mine:1",
	"X-Correlation-ID", "another, by case",
	"x-empty", "",
	"x-colons", "a: b: c:",
	"x-quotes", `"'\%00&<>`,
	"x-unicode", "grüße ☃ \U0001F600",
	"x-binary", "\x01\x02\xff\xfe",
	"x-json", `{"a":[1,2]}`,
	"content-type", "application/octet-stream",
	"x-a_b.c-d", "dots, dashes",
	"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	"tracestate", "vendor=value",
	"baggage", "user=1,tenant=2",
}

// deadLetter: it says why, by whom and when, and holds payload and headers
// byte for byte.
func (s *suite) deadLetter() {
	big := bytes.Repeat([]byte{0, 1, 2, 255}, protocol.DefaultMaxPayload/4)
	for route, payload := range map[string][]byte{
		"empty": {}, "null": []byte("null"), "binary": {0, 255, 13, 10, 0}, "big": big, "text": []byte(`{"a":1}`),
	} {
		spec := s.on(route)
		spec.MaxRetries = 2
		w := s.worker(spec)
		ack := s.publish(route, payload, hostile...)
		before := time.Now()
		for _, text := range []string{"first", "second\nline"} {
			d := w.next()
			s.same(route, d.Data, d.Header, payload)
			d.endWith(protocol.Failed, text)
		}
		letter := s.awaitLetters(route, 1)[0]
		s.same(route, letter.Payload, whole(&letter), payload)
		equal(s, "message id", letter.MessageID, ack.MessageID)
		equal(s, "queue", letter.Queue, scope.ScopedName(s.execution, route))
		equal(s, "source", letter.Source, w.ids[route])
		equal(s, "reason", letter.Reason, protocol.ReasonFailed)
		equal(s, "error", letter.Error, "second\nline")
		equal(s, "attempts", letter.Attempts, 2)
		equal(s, "generation", letter.Generation, 0)
		if letter.FirstFailure.Before(before) || !letter.LastFailure.After(letter.FirstFailure) || letter.LastFailure.After(time.Now()) {
			s.Errorf("failures at %v and %v, published at %v", letter.FirstFailure, letter.LastFailure, before)
		}
		equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: ack.MessageID}), 1)
		d := w.next()
		s.same(route, d.Data, d.Header, payload)
		d.end(protocol.Acknowledged)
		s.awaitEmpty(route, 0)
	}
}

// whole are a dead letter's headers byte for byte: JSON text holds most of them.
func whole(letter *protocol.DeadLetter) nats.Header {
	headers := nats.Header(maps.Clone(letter.Headers))
	for name, values := range letter.HeadersBase64 {
		headers[name] = nil
		for _, v := range values {
			headers[name] = append(headers[name], string(v))
		}
	}
	return headers
}

// same compares a delivery's or dead letter's payload and headers with what
// was published.
func (s *suite) same(what string, payload []byte, headers nats.Header, want []byte) {
	s.Helper()
	if !bytes.Equal(payload, want) {
		s.Errorf("%s: the payload has changed, %d bytes to %d", what, len(want), len(payload))
	}
	for i := 0; i < len(hostile); i += 2 {
		got, want := headers[hostile[i]], hostile[i+1]
		if len(got) != 1 || got[0] != want {
			s.Errorf("%s: header %s is %q, want %q", what, hostile[i], got, want)
		}
	}
}

// headers: they are the same on every attempt, and single.
func (s *suite) headers() {
	spec := s.on("r")
	spec.MaxRetries = 5
	w := s.worker(spec)
	s.publish("r", []byte("x"), append([]string{protocol.HeaderDedup, "once"}, hostile...)...)
	var first nats.Header
	for attempt := 1; attempt <= 5; attempt++ {
		d := w.next()
		s.same("delivery", d.Data, d.Header, []byte("x"))
		for name, values := range d.Header {
			if len(values) != 1 {
				s.Errorf("attempt %d: header %s has %d values", attempt, name, len(values))
			}
		}
		if first == nil {
			first = d.Header
		}
		equal(s, "number of headers", len(d.Header), len(first))
		d.end(protocol.Failed)
	}
	s.awaitEmpty("r", 1)
}

// redrive: the message has a whole new budget, under the same id, also at once
// after it died and whatever its payload.
func (s *suite) redrive() {
	spec := s.on("r")
	spec.MaxRetries = 2
	w := s.worker(spec)
	ack := s.publish("r", nil, protocol.HeaderDedup, "once")
	fail := func(generation string) {
		for attempt := 1; attempt <= 2; attempt++ {
			d := w.next()
			equal(s, "attempt", d.attempt(), attempt)
			equal(s, "generation", d.Header.Get(protocol.HeaderGeneration), generation)
			equal(s, "message id", d.id(), ack.MessageID)
			equal(s, "bytes", len(d.Data), 0)
			d.end(protocol.Failed)
		}
	}
	fail("")
	s.awaitLetters("r", 1)
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: ack.MessageID}), 1)
	fail("1")
	letter := s.awaitLetters("r", 1)[0]
	equal(s, "generation", letter.Generation, 1)
	equal(s, "attempts", letter.Attempts, 2)
	queue := scope.ScopedName(s.execution, "r")
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: queue}), 1)
	d := w.next()
	equal(s, "generation", d.Header.Get(protocol.HeaderGeneration), "2")
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "redriven", q.Counters[protocol.CountRedriven], 2)
	equal(s, "published", q.Counters[protocol.CountPublished], 1)
	equal(s, "unknown", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: ack.MessageID}), 0)
}

func (s *suite) act(subject string, r protocol.DeadActRequest) int64 {
	s.Helper()
	return ask[protocol.DeadActReply](s, subject, r).Count
}

// discard: gone, and never redelivered. Where there is no place for dead letters there
// are none.
func (s *suite) discard() {
	w := s.worker(s.on("r"))
	for _, nowhere := range []protocol.DeadActRequest{{Queue: scope.ScopedName(s.execution, "nowhere")}, {Topic: s.topic()}} {
		page := ask[protocol.DeadPage](s, protocol.SubjectDeadList, protocol.DeadListRequest{Queue: nowhere.Queue, Topic: nowhere.Topic})
		equal(s, "listed where there is no place", page.Total, 0)
		equal(s, "redriven where there is no place", s.act(protocol.SubjectDeadRedrive, nowhere), 0)
		equal(s, "discarded where there is no place", s.act(protocol.SubjectDeadDiscard, nowhere), 0)
	}
	for range 3 {
		s.publish("r", []byte("x"))
		w.next().end(protocol.Rejected)
	}
	letters := s.awaitLetters("r", 3)
	equal(s, "discarded", s.act(protocol.SubjectDeadDiscard, protocol.DeadActRequest{MessageID: letters[1].MessageID}), 1)
	equal(s, "left", len(s.letters(s.execution, "r")), 2)
	equal(s, "discarded", s.act(protocol.SubjectDeadDiscard, protocol.DeadActRequest{Queue: letters[0].Queue}), 2)
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{Queue: letters[0].Queue}), 0)
	q := s.awaitEmpty("r", 0)
	equal(s, "discarded", q.Counters[protocol.CountDiscarded], 3)
	equal(s, "delivered", q.Counters[protocol.CountDelivered], 3)
}
