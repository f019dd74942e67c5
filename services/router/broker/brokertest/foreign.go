package brokertest

import (
	"bytes"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// foreign: what another program puts straight into a queue is handled like what
// was published, whatever its headers claim, and nothing of it is ever stuck.
func (s *suite) foreign() {
	if !s.Capabilities.Open {
		return // nobody else can put anything anywhere
	}
	death := []any{map[string]any{"count": int64(99), "reason": "rejected", "queue": "another", "time": time.Now()}}
	for name, c := range map[string]struct {
		headers map[string]any
		body    []byte
	}{
		"plain":   {nil, []byte("no JSON")},
		"empty":   {nil, nil},
		"forged":  {map[string]any{protocol.HeaderAttempt: "7", protocol.HeaderGeneration: "5", protocol.HeaderMessageID: "mine"}, []byte("{}")},
		"numbers": {map[string]any{protocol.HeaderAttempt: int32(9), "n": int64(1), "yes": true, "bytes": []byte{0, 255}, "float": 1.5}, []byte("x")},
		"nested":  {map[string]any{"table": map[string]any{"a": "b"}, "list": []any{"a", int32(1)}, "none": nil}, []byte("x")},
		"died":    {map[string]any{"x-death": death, "x-first-death-queue": "another", "x-delivery-count": int64(50)}, []byte("x")},
		"names":   {map[string]any{"a: b": "colon", "line\nbreak": "x", "": "empty", "value": "line\r\nbreak"}, []byte("x")},
		"large":   {nil, bytes.Repeat([]byte{0, 1}, protocol.DefaultMaxPayload/2)},
	} {
		s.handlesForeign(name, c.headers, c.body)
	}
}

// handlesForeign: three tries, each telling its number and no other's, then a
// dead letter that is redriven under its id.
func (s *suite) handlesForeign(route string, headers map[string]any, body []byte) {
	s.Helper()
	w := s.worker(s.on(route))
	s.await(route, "the consumer", func(q protocol.QueueInfo) bool { return q.Consumers == 1 })
	s.Put(s.T, scope.ScopedName(s.execution, route), headers, body)
	id := ""
	for attempt := 1; attempt <= protocol.DefaultMaxRetries; attempt++ {
		d := w.next()
		equal(s, route+": attempt", d.attempt(), attempt)
		equal(s, route+": generation", d.Header.Get(protocol.HeaderGeneration), "")
		if !bytes.Equal(d.Data, body) {
			s.Errorf("%s: the payload has changed, %d bytes to %d", route, len(body), len(d.Data))
		}
		if id == "" {
			id = d.id()
		}
		equal(s, route+": message id", d.id(), id)
		d.end(protocol.Failed)
	}
	letter := s.awaitLetters(route, 1)[0]
	equal(s, route+": attempts", letter.Attempts, protocol.DefaultMaxRetries)
	equal(s, route+": message id", letter.MessageID, id)
	equal(s, "redriven", s.act(protocol.SubjectDeadRedrive, protocol.DeadActRequest{MessageID: id}), 1)
	w.next().end(protocol.Acknowledged)
	s.awaitEmpty(route, 0)
}
