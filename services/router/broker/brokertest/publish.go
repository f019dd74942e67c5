package brokertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// publishAnswer: a publish is answered when it is stored, in a shape that
// JetStream's client library reads.
func (s *suite) publishAnswer() {
	ack := s.publish("r", []byte("one"))
	equal(s, "broker", ack.Broker, s.Broker)
	equal(s, "stream", ack.Stream, "WAYBILL_"+s.Broker)
	equal(s, "listeners", ack.Listeners, 0)
	equal(s, "duplicate", ack.Duplicate, false)
	if id, err := uuid.Parse(ack.MessageID); err != nil || id.Version() != 7 {
		s.Errorf("the message id %q is no UUIDv7", ack.MessageID)
	}
	if ack.Durability == "" {
		s.Error("the answer does not say how durable the message is")
	}
	w := s.worker(s.on("r"))
	equal(s, "message id", w.next().id(), ack.MessageID)
	s.await("r", "the consumer", func(q protocol.QueueInfo) bool { return q.Consumers == 1 })
	equal(s, "listeners", s.publish("r", []byte("two")).Listeners, 1)

	js, err := jetstream.New(s.nc)
	if err != nil {
		s.Fatal(err)
	}
	got, err := js.Publish(s.guarded(), protocol.PublishQueueSubject(s.execution, "r"), []byte("three"))
	if err != nil {
		s.Fatalf("publishing with the JetStream client: %v", err)
	}
	if got.Sequence == 0 || got.Stream != ack.Stream {
		s.Errorf("the JetStream client reads %+v", got)
	}
}

// publishRefused: what is refused says so with a code, and nothing of it is
// stored.
func (s *suite) publishRefused() {
	to := protocol.PublishQueueSubject
	w := s.worker(s.on("r"))
	for _, c := range []struct {
		what, subject string
		data          []byte
		headers       nats.Header
		code          protocol.Code
	}{
		{"execution *", to("*", "r"), nil, nil, protocol.CodeInvalidName},
		{"execution >", to(">", "r"), nil, nil, protocol.CodeInvalidName},
		{"execution with a slash", to("a/b", "r"), nil, nil, protocol.CodeInvalidName},
		{"execution of 65", to(sixtyFour+"x", "r"), nil, nil, protocol.CodeInvalidName},
		{"execution not ASCII", to("ä", "r"), nil, nil, protocol.CodeInvalidName},
		{"route *", to(s.execution, "*"), nil, nil, protocol.CodeInvalidName},
		{"route with >", to(s.execution, "r.>"), nil, nil, protocol.CodeInvalidName},
		{"no route", protocol.SubjectPublishQueue + s.execution, nil, nil, protocol.CodeInvalidName},
		{"route .dlq", to(s.execution, "r.dlq"), nil, nil, protocol.CodeInvalidName},
		{"route .retry", to(s.execution, "r.retry.1000"), nil, nil, protocol.CodeInvalidName},
		{"another execution's", to(s.execution, "/queue/other/r"), nil, nil, protocol.CodeInvalidName},
		{"route too long", to(s.execution, strings.Repeat("r", 1000)), nil, nil, protocol.CodeInvalidName},
		{"payload", to(s.execution, "r"), make([]byte, protocol.DefaultMaxPayload+1), nil, protocol.CodePayloadTooLarge},
		{"headers too large", to(s.execution, "r"), nil, pairs([]string{"x-large", strings.Repeat("v", protocol.MaxHeaderBytes)}), protocol.CodeLimitExceeded},
		{"two values", to(s.execution, "r"), nil, nats.Header{"x-two": {"a", "b"}}, protocol.CodeInvalidArgs},
		{"dedup id too long", to(s.execution, "r"), nil, pairs([]string{protocol.HeaderDedup, strings.Repeat("d", protocol.MaxDedupID+1)}), protocol.CodeInvalidArgs},
	} {
		_, refused := s.tryPublish(c.subject, c.data, c.headers)
		if refused == nil || refused.Code != c.code {
			s.Errorf("%s: got %v, want %s", c.what, refused, c.code)
		}
	}
	s.publish("r", []byte("good")) // an execution that met bad neighbours works
	d := w.next()
	equal(s, "payload", string(d.Data), "good")
	d.end(protocol.Acknowledged)
	equal(s, "published", s.awaitEmpty("r", 0).Counters[protocol.CountPublished], 1)
}

// brokersObey are header names that some broker, or the mesh, would act on.
var brokersObey = []string{
	"Nats-Rollup", "Nats-Schedule", "Nats-Schedule-Target", "Nats-TTL", "Nats-Expected-Stream",
	"Nats-Expected-Last-Subject-Sequence", "Nats-Batch-Id", "Nats-Batch-Commit",
	"Waybill-Message-Id", "Waybill-Outcome", "Waybill-Anything", "x-delivery-attempt", "Status",
	"CC", "BCC", "x-death", "x-first-death-queue", "x-delivery-count",
	"AMQ_SCHEDULED_TIME", "AMQ_SCHEDULED_DELAY", "_AMQ_SCHED_DELIVERY", "_AMQ_DUPL_ID",
	"destination", "receipt", "transaction", "persistent", "selector", "content-length", "JMSXGroupID",
}

// reservedHeaders: none of them can be published, however it is written.
func (s *suite) reservedHeaders() {
	subject := protocol.PublishQueueSubject(s.execution, "r")
	for _, name := range brokersObey {
		for _, variant := range []string{name, strings.ToLower(name), strings.ToUpper(name), mixed(name)} {
			_, refused := s.tryPublish(subject, []byte("x"), nats.Header{variant: {"all"}})
			if refused == nil || refused.Code != protocol.CodeReservedHeader {
				s.Errorf("header %s: got %v, want %s", variant, refused, protocol.CodeReservedHeader)
			}
		}
	}
	equal(s, "stored", s.queue(s.execution, "r").Counters[protocol.CountPublished], 0)
}

// mixed alternates the case of letters.
func mixed(s string) string {
	upper := false
	return strings.Map(func(r rune) rune {
		if upper = !upper; upper {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, s)
}

// dedup: an id is stored once within its queue, and means nothing elsewhere.
func (s *suite) dedup() {
	if s.Capabilities.Dedup == 0 {
		s.refuses(protocol.HeaderDedup, "task-1")
		return
	}
	first := s.publish("r", []byte("1"), protocol.HeaderDedup, "task-1")
	again := s.publish("r", []byte("2"), protocol.HeaderDedup, "task-1")
	equal(s, "duplicate", again.Duplicate, true)
	equal(s, "message id", again.MessageID, first.MessageID)
	for _, other := range [][2]string{{s.execution, "r2"}, {s.execution + "b", "r"}} {
		ack := s.publishTo(other[0], other[1], []byte("3"), protocol.HeaderDedup, "task-1")
		equal(s, fmt.Sprint("duplicate in ", other), ack.Duplicate, false)
	}
	w := s.worker(s.on("r"))
	d := w.next()
	equal(s, "payload", string(d.Data), "1")
	d.end(protocol.Failed) // the copy of a retry is no duplicate
	d = w.next()
	equal(s, "attempt", d.attempt(), 2)
	d.end(protocol.Acknowledged)
	q := s.awaitEmpty("r", 0)
	equal(s, "published", q.Counters[protocol.CountPublished], 1)
	equal(s, "deduplicated", q.Counters[protocol.CountDeduplicated], 1)
	s.dedupAtOnce()
}

// dedupAtOnce: also of those that arrive before the first is stored.
func (s *suite) dedupAtOnce() {
	const n = 50
	ids, duplicates := map[string]bool{}, 0
	for _, ack := range s.publishAtOnce("burst", make([][]byte, n), pairs([]string{protocol.HeaderDedup, "same"})) {
		ids[ack.MessageID] = true
		if ack.Duplicate {
			duplicates++
		}
	}
	equal(s, "messages", len(ids), 1)
	equal(s, "duplicates", duplicates, n-1)
	s.wantReady(scope.ScopedName(s.execution, "burst"), 1)
}

// publishBursts: what is published at once is answered, each of it, though nothing
// that is published later pushes it on.
func (s *suite) publishBursts() {
	const bursts, n = 20, 500
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = make([]byte, 1<<10)
	}
	ids := map[string]bool{}
	for range bursts {
		for _, ack := range s.publishAtOnce("r", bodies, nil) {
			ids[ack.MessageID] = true
		}
	}
	equal(s, "messages", len(ids), bursts*n)
}

// publishAtOnce publishes to a route without waiting for one to be answered before the
// next, and then for every answer.
func (s *suite) publishAtOnce(route string, bodies [][]byte, headers nats.Header) []protocol.PublishAck {
	s.Helper()
	all := make([]*nats.Msg, len(bodies))
	for i, body := range bodies {
		all[i] = &nats.Msg{Subject: protocol.PublishQueueSubject(s.execution, route), Header: headers, Data: body}
	}
	return s.publishAll(all)
}

func (s *suite) publishAll(all []*nats.Msg) []protocol.PublishAck {
	s.Helper()
	inbox := nats.NewInbox()
	answers := make(chan *nats.Msg, len(all))
	sub, err := s.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range all {
		m.Reply = inbox
		if err := s.nc.PublishMsg(m); err != nil {
			s.Fatal(err)
		}
	}
	acks := make([]protocol.PublishAck, len(all))
	for i := range acks {
		select {
		case m := <-answers:
			if refused := protocol.ParseErrorBody(m.Data); refused != nil {
				s.Fatalf("a publish was refused: %v", refused)
			}
			if err := json.Unmarshal(m.Data, &acks[i]); err != nil {
				s.Fatalf("the answer %q is no receipt: %v", m.Data, err)
			}
		case <-s.guarded().Done():
			s.Fatalf("%d of %d publishes were not answered", len(acks)-i, len(acks))
		}
	}
	if err := sub.Unsubscribe(); err != nil {
		s.Fatal(err)
	}
	return acks
}

// eitherForm: a route and a name with the queue prefix are one queue.
func (s *suite) eitherForm() {
	w := s.worker(s.on("scraping.tasks"))
	for _, form := range []string{"scraping.tasks", "/queue/scraping.tasks", "/queue/" + s.execution + "/scraping.tasks"} {
		s.publish(form, []byte(form))
		d := w.next()
		equal(s, "payload", string(d.Data), form)
		d.end(protocol.Acknowledged)
	}
	pages := ask[protocol.SubscriptionsPage](s, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Execution: s.execution})
	if len(pages.Subscriptions) != 1 || pages.Subscriptions[0].Queue != "/queue/"+s.execution+"/scraping.tasks" {
		body, err := json.Marshal(pages)
		s.Errorf("subscriptions: %s (%v)", body, err)
	}
}
