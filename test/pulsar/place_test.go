package pulsar_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// delayMs is how long what fails waits in these tests.
const delayMs = 700

// TestOnTheBroker shares one mesh between its parts.
func TestOnTheBroker(t *testing.T) {
	t.Parallel()
	shared := on(t, live.SharedPulsar(t), delayMs)
	for name, test := range map[string]func(*place){
		"Stages": (*place).stages, "Strangers": (*place).strangers, "Topic": (*place).topics, "Away": (*place).away,
		"ManyDeadLetters": (*place).manyDeadLetters, "InOrder": (*place).inOrder, "Gone": (*place).gone, "Partitioned": (*place).partitioned, "Large": (*place).large,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := shared.mesh.For(t)
			test(&place{T: t, mesh: m, server: shared.server, space: shared.space, client: m.Connect()})
		})
	}
}

// stages: at each a message is where it is said to be; it comes again after the
// configured delay, every time, and its attempts go 1, 2, 3.
func (p *place) stages() {
	const topic = "queue:stages:tasks"
	r := p.publish(client.Queue("stages", "tasks"), "x", client.Header("x-tenant", "acme"), client.InGroup("g"))
	if r.Broker != "pulsar" || p.backlog(topic, "waybill") != 1 {
		p.Errorf("the receipt names the broker %q, the topic has %d", r.Broker, p.backlog(topic, "waybill"))
	}
	deliveries, _ := p.work("stages", "tasks")
	var failed time.Time
	for attempt := 1; attempt <= 3; attempt++ {
		d := harness.Receive(p, "the message", deliveries)
		if waited := time.Since(failed); d.Attempt != attempt || waited < delayMs*time.Millisecond {
			p.Errorf("it came as attempt %d after %v, want %d", d.Attempt, waited, attempt)
		}
		if s := p.server.Subscriptions(p, p.space, topic)["waybill"]; s.Type != "Shared" {
			p.Errorf("the subscription is %+v", s)
		}
		failed = time.Now()
		d.End <- errFails
		if attempt < 3 {
			harness.Await(p, "the copy that waits", func() bool { return p.mesh.Queue("stages", "tasks").Waiting == 1 || len(deliveries) > 0 })
		}
	}
	p.awaitRest("stages", "tasks", 1)
	if n := p.backlog(topic+"-dlq", "waybill"); n != 1 {
		p.Fatalf("there are %d dead letters", n)
	}
	m, err := p.first(topic + "-dlq")
	if err != nil || string(m.Payload()) != "x" || m.Key() != "g" {
		p.Fatalf("the dead letter has %q, key %q, %v", m.Payload(), m.Key(), err)
	}
	for name, want := range map[string]string{
		protocol.HeaderAttempt: "3", protocol.HeaderMessageID: r.MessageID, "Waybill-Reason": "failed", protocol.HeaderError: "no luck",
		"Waybill-Queue": "/queue/stages/tasks", "x-tenant": "acme", protocol.HeaderGroup: "g",
	} {
		if got := m.Properties()[name]; got != want {
			p.Errorf("the dead letter says %s: %q, want %q", name, got, want)
		}
	}
}

// first is the first message of a topic, which stays.
func (p *place) first(topic string) (pulsar.Message, error) {
	p.Helper()
	r, err := p.stranger().CreateReader(pulsar.ReaderOptions{Topic: p.topic(topic), StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Next(p.Context())
}

// strangers: what they sent before anybody was there is not missed, a batch is handled
// message by message, and keys, ordering keys and properties are the same on every
// try and in the dead letter.
func (p *place) strangers() {
	const topic = "queue:foreign:tasks"
	c := p.stranger()
	p.put(c, topic, &pulsar.ProducerMessage{Payload: []byte("early")})
	deliveries, _ := p.work("foreign", "tasks", client.MaxRetries(2))
	early := harness.Receive(p, "what was sent first", deliveries)
	if string(early.Data) != "early" || early.Attempt != 1 {
		p.Errorf("it is %q, attempt %d", early.Data, early.Attempt)
	}
	early.End <- nil
	p.put(c, topic, &pulsar.ProducerMessage{
		Payload: []byte("\xff\x00"), Key: "k", OrderingKey: "o", Properties: map[string]string{"x-own": "ä", protocol.HeaderAttempt: "9", "Waybill-Generation": "7"},
	})
	for attempt := 1; attempt <= 2; attempt++ {
		d := harness.Receive(p, "the message", deliveries)
		if d.Attempt != attempt || d.Group != "o" || string(d.Data) != "\xff\x00" || d.Header("x-own") != "ä" || d.Header("X-Pulsar-Key") != "k" {
			p.Errorf("attempt %d of group %q with %q, %q: %q", d.Attempt, d.Group, d.Header("x-own"), d.Header("X-Pulsar-Key"), d.Data)
		}
		d.End <- errFails
	}
	p.awaitRest("foreign", "tasks", 1)
	m, err := p.first(topic + "-dlq")
	if err != nil || m.Key() != "k" || m.OrderingKey() != "o" || m.Properties()["x-own"] != "ä" || string(m.Payload()) != "\xff\x00" {
		p.Errorf("the dead letter is %+v, %v", m, err)
	}
	p.batch(c, topic, deliveries)
}

func (p *place) batch(c pulsar.Client, topic string, deliveries <-chan harness.Taken) {
	p.Helper()
	producer, err := c.CreateProducer(pulsar.ProducerOptions{Topic: p.topic(topic), SendTimeout: -1, BatchingMaxPublishDelay: time.Hour})
	if err != nil {
		p.Fatal(err)
	}
	defer producer.Close()
	const n = 5
	for i := range n {
		producer.SendAsync(p.Context(), &pulsar.ProducerMessage{Payload: []byte{'0' + byte(i)}}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	if err := producer.FlushWithCtx(p.Context()); err != nil {
		p.Fatal(err)
	}
	ids := map[string]bool{}
	for range n {
		d := harness.Receive(p, "a message of a batch", deliveries)
		ids[d.ID] = true
		d.End <- nil
	}
	if len(ids) != n {
		p.Errorf("the messages of a batch have the ids %v", ids)
	}
	harness.Await(p, "the batch to be settled", func() bool { return p.backlog(topic, "waybill") == 0 })
}

// topics: a topic has a subscription for each observer and group, each has what is
// published, by strangers too, and a retry is one observer's alone.
func (p *place) topics() {
	got := map[string]chan harness.Taken{}
	for name, opt := range map[string]client.WorkOption{"observer:audit": client.ID("audit"), "@mail": client.Group("mail")} {
		all := make(chan harness.Taken, 10)
		got[name] = all
		if _, err := p.client.Observe(p.Context(), "orders", func(ctx context.Context, d *client.Delivery) error {
			end := make(chan error, 1)
			all <- harness.Taken{Delivery: d, End: end}
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}, opt); err != nil {
			p.Fatal(err)
		}
	}
	p.publish(client.Topic("orders"), "ours")
	for name := range got {
		if n := p.backlog("topic:orders", name); n != 1 {
			p.Errorf("the subscription %s has %d", name, n)
		}
		d := harness.Receive(p, "the copy of "+name, got[name])
		if name == "@mail" {
			d.End <- errFails
			d = harness.Receive(p, "the second try", got[name])
			if d.Attempt != 2 {
				p.Errorf("the second try is attempt %d", d.Attempt)
			}
		}
		d.End <- nil
	}
	p.put(p.stranger(), "topic:orders", &pulsar.ProducerMessage{Payload: []byte("theirs")})
	for name, all := range got {
		d := harness.Receive(p, "the stranger's message", all)
		if string(d.Data) != "theirs" {
			p.Errorf("%s has %q", name, d.Data)
		}
		d.End <- nil
	}
}

// observe has the observer late take a topic.
func (p *place) observe(topic string) (<-chan string, *client.Worker) {
	p.Helper()
	all := make(chan string, 10)
	w, err := p.client.Observe(p.Context(), topic, func(_ context.Context, d *client.Delivery) error {
		all <- string(d.Data)
		return nil
	}, client.ID("late"))
	if err != nil {
		p.Fatal(err)
	}
	return all, w
}

// missesNothing: what is published to a topic while its observer is away waits for it,
// also when the topic moves away from the broker meanwhile.
func (p *place) missesNothing(move func()) {
	_, w := p.observe("left")
	if err := w.Stop(p.Context()); err != nil {
		p.Fatal(err)
	}
	for _, data := range []string{"1", "2"} {
		p.publish(client.Topic("left"), data)
	}
	if n := p.backlog("topic:left", "observer:late"); n != 2 {
		p.Errorf("%d messages wait for the observer", n)
	}
	move()
	p.publish(client.Topic("left"), "3")
	again, w := p.observe("left")
	p.publish(client.Topic("left"), "4")
	var got []string
	for range 4 {
		got = append(got, harness.Receive(p, "a message", again))
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		p.Errorf("it has %q", got)
	}
	if err := w.Stop(p.Context()); err != nil {
		p.Fatal(err)
	}
}

// away: what is published while an observer is away waits for it, and an observer that
// is removed leaves nothing behind.
func (p *place) away() {
	p.missesNothing(func() {})
	harness.Await(p, "the observer to be removed", func() bool {
		_, err := p.mesh.RemoveObserver("left::observer:late")
		return err == nil || protocol.CodeOf(err) == protocol.CodeNotFound
	})
	harness.Await(p, "what was its to be gone", func() bool {
		return p.backlog("topic:left", "observer:late") == -1 && !slices.Contains(p.server.Topics(p, p.space), "observer:left@late")
	})
}

// TestMovedAway: a topic that moves into the mesh takes along what waits for its
// observers, who are not forgotten over it. Nothing of theirs receives it on the broker
// any more. A queue that moves to where there are no dead letters leaves its own behind,
// and within reach. A broker that holds nothing any more is let go.
func TestMovedAway(t *testing.T) {
	t.Parallel()
	p := on(t, live.SharedPulsar(t), delayMs)
	const queue = "/queue/moved/tasks"
	deliveries, _ := p.work("moved", "tasks", client.MaxRetries(1))
	p.publish(client.Queue("moved", "tasks"), "x")
	harness.Receive(p, "the message", deliveries).End <- errFails
	p.awaitRest("moved", "tasks", 1)
	p.missesNothing(func() {
		p.mesh.Apply(fmt.Sprintf("adapter: {name: builtin}\nbrokers:\n  live: {name: redis, config: {redis_url: %q}}\nroutes:\n  - {pattern: %s, broker: live}\n",
			live.SharedRedis(t).URL(), queue))
	})
	if letters := p.mesh.Dead(queue); len(letters) != 1 {
		t.Errorf("the dead letters of the queue that has moved are %+v", letters)
	}
	if n, err := p.mesh.Discard(protocol.DeadActRequest{Queue: queue}); n != 1 || err != nil {
		t.Errorf("%d are discarded: %v", n, err)
	}
	harness.Await(t, "the observer to receive nothing there", func() bool { return p.backlog("topic:left", "observer:late") == -1 })
	harness.Await(t, "the broker to be let go", func() bool { _, there := p.mesh.Brokers()["pulsar"]; return !there })
}

// manyDeadLetters: all are listed, each once, one is taken out of the middle, and the
// others are redriven in their order.
func (p *place) manyDeadLetters() {
	const letters = 150
	deliveries, _ := p.work("many", "tasks", client.MaxRetries(1), client.Concurrency(1))
	ids := make([]string, letters)
	for i := range ids {
		ids[i] = p.publish(client.Queue("many", "tasks"), "x").MessageID
		harness.Receive(p, "a message", deliveries).End <- errFails
	}
	p.awaitRest("many", "tasks", letters)
	for range 2 { // a look changes nothing
		var seen []string
		for _, l := range p.mesh.Dead("/queue/many/tasks") {
			seen = append(seen, l.MessageID)
		}
		if !slices.Equal(seen, ids) {
			p.Fatalf("%d letters are listed: %q", len(seen), seen)
		}
	}
	if n, err := p.mesh.Discard(protocol.DeadActRequest{MessageID: ids[letters/2]}); n != 1 || err != nil {
		p.Errorf("discarding one: %d, %v", n, err)
	}
	if n, err := p.mesh.Redrive(protocol.DeadActRequest{Queue: "/queue/many/tasks"}); n != letters-1 || err != nil {
		p.Errorf("redriving the others: %d, %v", n, err)
	}
	for _, want := range slices.Delete(ids, letters/2, letters/2+1) {
		d := harness.Receive(p, "a redriven message", deliveries)
		if d.ID != want {
			p.Errorf("%s comes, want %s", d.ID, want)
		}
		d.End <- nil
	}
	p.awaitRest("many", "tasks", 0)
}

// inOrder: a queue in order is a Key_Shared subscription, of which the mesh holds what
// failed in its place.
func (p *place) inOrder() {
	deliveries, _ := p.work("turns", "tasks", client.FIFO())
	for _, data := range []string{"A", "B"} {
		p.publish(client.Queue("turns", "tasks"), data, client.InGroup("g"))
	}
	harness.Receive(p, "the first", deliveries).End <- errFails
	if s := p.server.Subscriptions(p, p.space, "queue:turns:tasks")["waybill"]; s.Type != "Key_Shared" || s.Backlog != 2 {
		p.Errorf("the subscription is %+v", s)
	}
	for _, want := range []string{"A", "B"} {
		d := harness.Receive(p, "the next", deliveries)
		if string(d.Data) != want {
			p.Errorf("%q comes, want %q", d.Data, want)
		}
		d.End <- nil
	}
	p.awaitRest("turns", "tasks", 0)
}

// gone: an execution that is purged leaves no topic behind.
func (p *place) gone() {
	deliveries, _ := p.work("gone", "tasks", client.MaxRetries(1))
	p.publish(client.Queue("gone", "tasks"), "dies")
	harness.Receive(p, "the message", deliveries).End <- errFails
	p.awaitRest("gone", "tasks", 1)
	if _, err := p.mesh.Close("gone", true); err != nil {
		p.Fatal(err)
	}
	harness.Await(p, "its topics to be gone", func() bool {
		return !slices.ContainsFunc(p.server.Topics(p, p.space), func(topic string) bool { return strings.Contains(topic, ":gone:") })
	})
}

// partitioned: a topic that somebody has made in partitions is no queue.
func (p *place) partitioned() {
	p.server.Admin(p, http.MethodPut, "persistent/"+live.Tenant+"/"+p.space+"/queue:parts:tasks/partitions", 3, nil)
	_, err := p.client.Publish(p.Context(), client.Queue("parts", "tasks"), []byte("x"))
	if protocol.CodeOf(err) != protocol.CodeConflict || !strings.Contains(err.Error(), "queue:parts:tasks is there with 3 partitions") {
		p.Errorf("a publish to it ends with %v", err)
	}
}

// large: a stranger's message that is as large as the broker takes comes again when it
// has failed, though there is no room for a copy of it, and so does not stay when it is
// dead; one in chunks that nobody can be given is dead at once.
func (p *place) large() {
	const most = 5<<20 - 200 // of the broker's default
	c := p.stranger()
	produce := func(o pulsar.ProducerOptions, size int) {
		p.Helper()
		o.Topic, o.SendTimeout, o.DisableBatching = p.topic("queue:large:tasks"), -1, true
		producer, err := c.CreateProducer(o)
		if err != nil {
			p.Fatal(err)
		}
		defer producer.Close()
		if _, err := producer.Send(p.Context(), &pulsar.ProducerMessage{Payload: make([]byte, size)}); err != nil {
			p.Fatal(err)
		}
	}
	taken, _ := p.work("large", "tasks", client.MaxRetries(2))
	produce(pulsar.ProducerOptions{}, most)
	var failed time.Time
	for attempt := range 2 {
		d := harness.Receive(p, "the message", taken)
		if waited := time.Since(failed); d.Attempt != attempt+1 || len(d.Data) != most || waited < delayMs*time.Millisecond {
			p.Errorf("attempt %d came with %d bytes after %v, want attempt %d", d.Attempt, len(d.Data), waited, attempt+1)
		}
		failed = time.Now()
		d.End <- errFails
	}
	produce(pulsar.ProducerOptions{EnableChunking: true}, 12<<20)
	p.awaitRest("large", "tasks", 2)
	sizes := map[int]protocol.Reason{}
	for _, l := range p.mesh.Dead("/queue/large/tasks") {
		n, err := strconv.Atoi(strings.Fields(strings.TrimPrefix(l.Error, "the message had "))[0])
		if err != nil || l.SizeBytes != 512<<10 {
			p.Errorf("a dead letter has %d bytes and says %s", l.SizeBytes, l.Error)
		}
		sizes[n] = l.Reason
	}
	if len(sizes) != 2 || sizes[most] != protocol.ReasonFailed || sizes[12<<20] != protocol.ReasonRejected {
		p.Errorf("dead are %v", sizes)
	}
	if n := p.backlog("queue:large:tasks", "waybill"); n != 0 {
		p.Errorf("%d are left on the broker", n)
	}
}
