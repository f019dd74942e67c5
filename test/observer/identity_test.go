package observer_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// A program that was killed with deliveries in its hands and starts again under
// its name has its id at once, and all that it has missed, each once. Another is
// refused, and told whose the id is.
func TestAKilledObserverComesBack(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	p := m.Connect()
	spec := harness.WorkerSpec{URL: m.URL, Topic: topic, ID: "billing", Name: "billing-service", Concurrency: 3}
	first := harness.StartWorker(t, spec)
	publish(t, p, 1, harness.Hold, harness.Hold, harness.Hold)
	ids := map[string]int{}
	for range 3 {
		ids[first.Delivery().ID] = 0
	}
	if _, err := p.Observe(t.Context(), topic, newDiary(t).handle, client.ID("billing")); protocol.CodeOf(err) != protocol.CodeObserverIDConflict ||
		!strings.Contains(err.Error(), "billing-service") || !strings.Contains(err.Error(), "30s after") {
		t.Errorf("another program: %v", err)
	}
	first.Kill()
	for range 3 {
		receipt, err := p.Publish(t.Context(), client.Topic(topic), []byte("missed"))
		if err != nil || receipt.Listeners != 1 {
			t.Fatalf("%+v, %v", receipt, err)
		}
		ids[receipt.MessageID] = 0
	}
	if _, err := p.Observe(t.Context(), topic, newDiary(t).handle, client.ID("billing")); protocol.CodeOf(err) != protocol.CodeObserverIDConflict {
		t.Errorf("another program, after the kill: %v", err)
	}
	spec.Handler = acknowledging
	again := harness.StartWorker(t, spec)
	for range 6 {
		d := again.Delivery()
		if _, published := ids[d.ID]; !published || d.Attempt != 1 {
			t.Errorf("got %+v", d)
		}
		ids[d.ID]++
	}
	q := balanced(t, m, queueOf("billing"))
	for id, times := range ids {
		if times != 1 {
			t.Errorf("%s was delivered %d times", id, times)
		}
	}
	if q.Counters[protocol.CountAcknowledged] != 6 || q.Counters[protocol.CountFailed] != 0 {
		t.Errorf("%v", q.Counters)
	}
}

// While the mesh, NATS with it, is away for longer than the grace nobody expires:
// ids are whose they were, and what is published when it is back is received.
func TestNobodyExpiresWhileTheMeshIsAway(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	const grace = 15000
	m.Set(settings(grace, grace))
	d := newDiary(t)
	there := m.Connect(client.Name("there"))
	w := observe(t, there, d.handle, client.ID("a"))
	gone := harness.StartWorker(t, harness.WorkerSpec{URL: m.URL, Topic: topic, ID: "b", Name: "gone"})
	gone.Terminate()
	gone.Exit(harness.Guard)
	m.AwaitObserver(queueOf("b"), protocol.ObserverRetained)
	publish(t, there, 2, "before")
	d.await(1)
	m.Kill()
	harness.Wait(t, (grace+1000)*time.Millisecond)
	m.Restart()
	other := m.Connect(client.Name("other"))
	publish(t, other, 2, "at once") // both: who is gone could not come back meanwhile
	for _, id := range []string{"a", "b"} {
		if _, err := other.Observe(t.Context(), topic, d.handle, client.ID(id)); protocol.CodeOf(err) != protocol.CodeObserverIDConflict {
			t.Errorf("%s, as soon as the mesh is back: %v", id, err)
		}
	}
	if err := w.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.await(2)
	balanced(t, m, queueOf("a"))
	d.once("before", "at once")
}

// raw is a worker that a test speaks the wire for.
type raw struct {
	t    *testing.T
	nc   *nats.Conn
	id   string
	name string
	n    uint64
	got  chan *nats.Msg
}

func newRaw(t *testing.T, m *harness.Mesh, id string) *raw {
	t.Helper()
	nc, err := nats.Connect(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := &raw{t: t, nc: nc, id: id, name: "raw-" + id, got: make(chan *nats.Msg, 64)}
	r.serve(protocol.WorkerSubject(id, protocol.VerbProbe), func(msg *nats.Msg) { _ = msg.Respond(nil) })
	return r
}

func (r *raw) serve(subject string, h nats.MsgHandler) {
	r.t.Helper()
	if _, err := r.nc.Subscribe(subject, h); err != nil {
		r.t.Fatal(err)
	}
}

// hello declares the subscriptions, and takes their deliveries.
func (r *raw) hello(specs ...protocol.SubscriptionSpec) {
	r.t.Helper()
	r.n++
	body, err := json.Marshal(protocol.Hello{WorkerID: r.id, Name: r.name, Revision: r.n, Subscriptions: specs})
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.nc.Request(protocol.SubjectHello, body, harness.Guard)
	if err != nil {
		r.t.Fatal(err)
	}
	var registered protocol.Registered
	if e := protocol.ParseErrorBody(answer.Data); e != nil {
		r.t.Fatal(e)
	}
	if err := json.Unmarshal(answer.Data, &registered); err != nil || len(registered.Refused) > 0 {
		r.t.Fatalf("%+v, %v", registered, err)
	}
	for _, sub := range registered.Subscriptions {
		r.serve(sub.Deliver, func(msg *nats.Msg) { r.got <- msg })
	}
}

// An observer that was removed while it has deliveries in its hands may answer
// them; whoever has its id then has the others. Each message once, and the
// counters balance.
func TestAnIDTakenOverWhileTheOldWorkerStillAnswers(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	old := newRaw(t, m, "w1")
	old.hello(protocol.SubscriptionSpec{Ref: "r", FunctionID: protocol.FunctionOnMessage, Args: []byte(`{"topic":"` + topic + `"}`), ObserverID: "a"})
	publish(t, c, 1, "one", "two")
	held := []*nats.Msg{harness.Receive(t, "a delivery", old.got), harness.Receive(t, "a delivery", old.got)}
	old.hello() // it observes no more
	d := newDiary(t)
	observe(t, c, d.handle, client.ID("a"))
	publish(t, c, 1, "three")
	d.await(1)
	for _, msg := range held {
		if err := msg.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
	q := balanced(t, m, queueOf("a"))
	d.once("three")
	if q.Counters[protocol.CountAcknowledged] != 3 || q.Counters[protocol.CountDelivered] != 3 || q.Counters[protocol.CountVanished] != 0 {
		t.Errorf("%v", q.Counters)
	}
}

var acknowledging = harness.RegisterHandler("acknowledge", func(context.Context, *client.Delivery) error { return nil })
