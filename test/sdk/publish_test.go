package sdk_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

var queue = client.Queue("run", "step")

func TestPublishReturnsWhatTheMeshAnswered(t *testing.T) {
	s := startStandIn(t)
	asked := make(chan *nats.Msg, 1)
	s.answering(func(m *nats.Msg) {
		asked <- m
		s.respond(m, protocol.PublishAck{Stream: "WAYBILL_builtin", Seq: 7, MessageID: "id", Broker: "builtin", Durability: "fsync", Listeners: 2, Duplicate: true})
	})
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled}))
	got, err := s.connect().Publish(ctx, queue, []byte{0, 255}, client.Header("X-Own", "ä b"), client.DedupID("d"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (client.Receipt{Stream: "WAYBILL_builtin", Seq: 7, MessageID: "id", Broker: "builtin", Durability: "fsync", Listeners: 2, Duplicate: true}); *got != want {
		t.Errorf("receipt %+v, want %+v", *got, want)
	}
	m := receive(t, asked)
	if m.Subject != "wb.v1.pub.queue.run.step" || string(m.Data) != "\x00\xff" || m.Header.Get("X-Own") != "ä b" || m.Header.Get("Nats-Msg-Id") != "d" {
		t.Errorf("published %s %v %q", m.Subject, m.Header, m.Data)
	}
	if parent := m.Header[protocol.HeaderTraceparent]; len(parent) != 1 || !strings.HasPrefix(parent[0], "00-0100") {
		t.Errorf("traceparent %q", parent)
	}
}

func TestARefusalKeepsItsCode(t *testing.T) {
	s := startStandIn(t)
	s.answering(func(m *nats.Msg) { refuseWith(m, protocol.Errorf(protocol.CodeQuotaExceeded, "full")) })
	_, err := s.connect().Publish(t.Context(), queue, nil)
	wantCode(t, err, protocol.CodeQuotaExceeded)
}

func TestBadMessagesAreNotSent(t *testing.T) {
	s := startStandIn(t)
	s.answering(func(m *nats.Msg) { t.Errorf("sent: %s %v", m.Subject, m.Header) })
	c := s.connect()
	publish := func(to client.Destination, opts ...client.PublishOption) error {
		_, err := c.Publish(t.Context(), to, nil, opts...)
		return err
	}
	for _, name := range []string{"", "*", ">", "a..b", "a b", "x.dlq"} {
		wantCode(t, publish(client.Queue("run", name)), protocol.CodeInvalidName)
		wantCode(t, publish(client.Queue(name, "step")), protocol.CodeInvalidName)
	}
	wantCode(t, publish(client.Destination{}), protocol.CodeInvalidArgs)
	wantCode(t, publish(queue, client.Header("NATS-Rollup", "all")), protocol.CodeReservedHeader)
	wantCode(t, publish(queue, client.Header("X-Delivery-Attempt", "3")), protocol.CodeReservedHeader)
	wantCode(t, publish(queue, client.Header("a:b", "x")), protocol.CodeInvalidArgs)
	wantCode(t, publish(queue, client.Header("a", "x\r\nb")), protocol.CodeInvalidArgs)
	wantCode(t, publish(queue, client.Header("a", " x")), protocol.CodeInvalidArgs)
	for _, mangled := range []string{"x\r\nb", "x\x00", " x", "x\t"} { // two ids would be one
		wantCode(t, publish(queue, client.DedupID(mangled)), protocol.CodeInvalidArgs)
		wantCode(t, publish(queue, client.InGroup(mangled)), protocol.CodeInvalidArgs)
		wantCode(t, publish(client.Job("q", "default", "f"), client.JobReceipt(mangled)), protocol.CodeInvalidArgs)
	}
	wantCode(t, publish(queue, client.DedupID(strings.Repeat("d", protocol.MaxDedupID+1))), protocol.CodeLimitExceeded)
	_, err := c.Publish(t.Context(), queue, make([]byte, 9<<20))
	wantCode(t, err, protocol.CodePayloadTooLarge)
}

func TestNobodyThereSaysWhatToStart(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	s.leave()
	_, err := c.PublishMany(t.Context(), []client.Message{{To: queue}})
	wantCode(t, err, protocol.CodeUnavailable)
	if !strings.Contains(err.Error(), "waybill up") {
		t.Errorf("%v does not name the command", err)
	}
	_, err = c.Work(t.Context(), "run", "step", func(context.Context, *client.Delivery) error { return nil })
	wantCode(t, err, protocol.CodeUnavailable)
	_, err = client.Connect(t.Context(), "nats://127.0.0.1:0")
	wantCode(t, err, protocol.CodeUnavailable)
}

func TestNoAnswerIsATimeout(t *testing.T) {
	s := startStandIn(t)
	s.answering(func(*nats.Msg) {})
	c := s.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Publish(ctx, queue, nil)
	wantCode(t, err, protocol.CodeTimeout)
	p, err := c.NewPublisher(client.AnswerTimeout(50 * time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.Publish(t.Context(), client.Message{To: queue})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Wait(t.Context())
	wantCode(t, err, protocol.CodeTimeout)
	wantCode(t, p.Flush(t.Context()), protocol.CodeTimeout)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatalf("a failure is reported once, then %v", err)
	}
}

// A publish that the mesh cannot take yet, or whose answer is lost, is published
// again, always under the same id, and the caller does not notice.
func TestPublishIsRepeatedUntilItIsAnswered(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	for name, first := range map[string]func(m *nats.Msg){
		"moving":    func(m *nats.Msg) { refuseWith(m, protocol.Errorf(protocol.CodeUnavailable, "moving")) },
		"lost":      func(*nats.Msg) { s.cut() },
		"no answer": func(*nats.Msg) {},
	} {
		ids := make(chan string, 100)
		s.answering(func(m *nats.Msg) {
			ids <- m.Header.Get(protocol.HeaderDedup)
			if len(ids) <= 1 {
				first(m)
				return
			}
			s.respond(m, protocol.PublishAck{MessageID: name, Duplicate: true})
		})
		for _, own := range []string{"", "mine"} {
			got, err := c.Publish(t.Context(), queue, nil, client.DedupID(own))
			if err != nil || got.MessageID != name || got.Duplicate != (own != "") {
				t.Fatalf("%s, %q: %+v %v", name, own, got, err)
			}
			id := <-ids
			if id == "" || own != "" && id != own {
				t.Errorf("%s, %q: the first had the id %q", name, own, id)
			}
			for len(ids) > 0 {
				if again := <-ids; again != id {
					t.Errorf("%s, %q: published with %q and again with %q", name, own, id, again)
				}
			}
		}
	}
}

// What the mesh refuses for good is not repeated; nor is what it has no room to
// remember, but for once without an id.
func TestARefusalIsNotRepeated(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	var asked []string
	s.answering(func(m *nats.Msg) {
		asked = append(asked, m.Header.Get(protocol.HeaderDedup))
		refuseWith(m, protocol.Errorf(protocol.CodeLimitExceeded, "too many ids"))
	})
	_, err := c.Publish(t.Context(), queue, nil)
	wantCode(t, err, protocol.CodeLimitExceeded)
	if len(asked) != 2 || asked[0] == "" || asked[1] != "" {
		t.Errorf("published with the ids %q", asked)
	}
	asked = nil
	_, err = c.Publish(t.Context(), queue, nil, client.DedupID("mine"))
	wantCode(t, err, protocol.CodeLimitExceeded)
	if len(asked) != 1 || asked[0] != "mine" {
		t.Errorf("published with the ids %q", asked)
	}
}

func TestManyMessagesKeepTheirOrderAndTheirErrors(t *testing.T) {
	s := startStandIn(t)
	var seq atomic.Uint64
	s.answering(func(m *nats.Msg) {
		if n := seq.Add(1); string(m.Data) == "bad" {
			refuseWith(m, protocol.Errorf(protocol.CodeConflict, "no"))
		} else {
			s.respond(m, protocol.PublishAck{Seq: n, MessageID: string(m.Data)})
		}
	})
	messages := make([]client.Message, 12_000)
	for i := range messages {
		messages[i] = client.Message{To: queue, Data: []byte(token(i))}
	}
	messages[6_000].Data = []byte("bad")
	messages[9_000].To = client.Queue("*", "step")
	results, err := s.connect().PublishMany(t.Context(), messages)
	wantCode(t, err, protocol.CodeConflict)
	sent := uint64(0)
	for i, r := range results {
		switch i {
		case 6_000:
			wantCode(t, r.Err, protocol.CodeConflict)
			sent++
		case 9_000:
			wantCode(t, r.Err, protocol.CodeInvalidName)
		default:
			sent++
			if r.Err != nil || r.Receipt.MessageID != token(i) || r.Receipt.Seq != sent {
				t.Fatalf("message %d: %+v %v", i, r.Receipt, r.Err)
			}
		}
	}
}

func TestTheWindowBoundsWhatIsUnanswered(t *testing.T) {
	const window = 8
	s := startStandIn(t)
	held := make(chan *nats.Msg, 100)
	s.answering(func(m *nats.Msg) { held <- m })
	p, err := s.connect().NewPublisher(client.Window(window))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 100)
	publish := func(ctx context.Context) error {
		return p.PublishFunc(ctx, client.Message{To: queue}, func(_ *client.Receipt, err error) { done <- err })
	}
	for range window {
		if err := publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantCode(t, publish(ctx), protocol.CodeTimeout)
	first := receive(t, held)
	s.respond(first, protocol.PublishAck{})
	s.respond(first, protocol.PublishAck{}) // twice: nothing
	if err := receive(t, done); err != nil {
		t.Fatal(err)
	}
	if err := publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	flushed := make(chan error, 1)
	go func() { flushed <- p.Flush(t.Context()) }()
	for range window {
		select {
		case err := <-flushed:
			t.Fatalf("flushed before all were answered: %v", err)
		default:
		}
		s.respond(receive(t, held), protocol.PublishAck{})
		receive(t, done)
	}
	if err := receive(t, flushed); err != nil {
		t.Fatal(err)
	}
}

func TestALostConnectionEndsWhatIsUnansweredAndLaterPublishesWait(t *testing.T) {
	s := startStandIn(t)
	held := make(chan *nats.Msg, 100)
	s.answering(func(m *nats.Msg) { held <- m })
	c := s.connect()
	p, err := c.NewPublisher()
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.Publish(t.Context(), client.Message{To: queue})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, held)
	s.answering(func(m *nats.Msg) { s.respond(m, protocol.PublishAck{MessageID: "later"}) })
	s.cut()
	_, err = f.Wait(t.Context())
	wantCode(t, err, protocol.CodeUnavailable)
	got, err := c.Publish(t.Context(), queue, nil)
	if err != nil || got.MessageID != "later" {
		t.Fatalf("%v %v", got, err)
	}
}

// TestWithNothingUnansweredThereIsNothingToWaitFor: whoever closes a client late
// is not told that something may be lost.
func TestWithNothingUnansweredThereIsNothingToWaitFor(t *testing.T) {
	s := startStandIn(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := s.connect().NewPublisher()
	if err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if err := p.Flush(ended); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.connect().Close(ended); err != nil {
		t.Error(err)
	}
}

func TestAClosedClientSaysSo(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	p, err := c.NewPublisher()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.Publish(t.Context(), queue, nil)
	wantCode(t, err, protocol.CodeUnavailable)
	_, err = p.Publish(t.Context(), client.Message{To: queue})
	wantCode(t, err, protocol.CodeUnavailable)
	_, err = c.NewPublisher()
	wantCode(t, err, protocol.CodeUnavailable)
	_, err = c.Work(t.Context(), "run", "step", func(context.Context, *client.Delivery) error { return nil })
	wantCode(t, err, protocol.CodeUnavailable)
	_, err = c.Handle(t.Context(), "default", "f", func(context.Context, []byte) ([]byte, error) { return nil, nil })
	wantCode(t, err, protocol.CodeUnavailable)
	_, err = c.Call(t.Context(), "default", "f", nil)
	wantCode(t, err, protocol.CodeUnavailable)
}

// Whoever publishes while the client closes gets an answer, whatever it is.
func TestClosingUnderLoad(t *testing.T) {
	for range 20 {
		s := startStandIn(t)
		c := s.connect()
		w := s.work(c, func(context.Context, *client.Delivery) error { return nil })
		ended := make(chan error, 4)
		for range cap(ended) {
			go func() {
				for {
					if _, err := c.Publish(t.Context(), queue, nil); err != nil {
						ended <- err
						return
					}
				}
			}()
		}
		for i := range 100 {
			s.deliver(w, delivery{lane: "lane", token: token(i)})
		}
		go w.Stop(context.Background())
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range cap(ended) {
			wantCode(t, receive(t, ended), protocol.CodeUnavailable)
		}
	}
}

func BenchmarkPublisher(b *testing.B) {
	s := startStandIn(b)
	ack := []byte(`{"stream":"WAYBILL_builtin","seq":123456,"message_id":"01931f6e-7b3a-7000-8000-000000000000","broker":"builtin","durability":"fsync","listeners":1}`)
	s.answering(func(m *nats.Msg) { m.Respond(ack) })
	c, err := client.Connect(b.Context(), s.server.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(context.Background())
	p, err := c.NewPublisher()
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 128)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.PublishFunc(b.Context(), client.Message{To: queue, Data: data}, func(*client.Receipt, error) {}); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
