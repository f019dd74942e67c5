package rabbitmq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// orphans: an observer's queue stays bound when its observer is gone, whatever the
// retention, and is listed with what it holds and since when, until an operator
// removes it. Those of observers without an id of their own are such queues too.
func (p *place) orphans() {
	handle := func(context.Context, *client.Delivery) error { return nil }
	zero := int64(0)
	p.mesh.Set(protocol.SettingsChange{SubscriberRetentionMs: &zero})
	queues := make([]string, 0, 3)
	for i := range 3 {
		var opts []client.WorkOption
		if i == 0 {
			opts = append(opts, client.ID("kept"))
		}
		w, err := p.client.Observe(p.Context(), "orphaned", handle, opts...)
		if err != nil {
			p.Fatal(err)
		}
		queues = append(queues, "orphaned::observer:"+w.ObserverID())
		if err := w.Stop(p.Context()); err != nil {
			p.Fatal(err)
		}
	}
	for _, queue := range queues {
		p.mesh.AwaitObserver(queue, protocol.ObserverOrphan)
	}
	if _, err := p.client.Publish(p.Context(), client.Topic("orphaned"), []byte("late")); err != nil {
		p.Fatal(err)
	}
	p.awaitDepth("iii.orphaned.observer:kept.queue", 1)
	p.put("iii.orphaned.observer:kept.dlq", amqp.Publishing{Body: []byte("dead")})
	for i, queue := range queues {
		o := p.mesh.AwaitObserver(queue, protocol.ObserverOrphan)
		if o.Ready != 1 || o.DetachedAt.IsZero() || !o.Receiving {
			p.Errorf("%s is listed as %+v", queue, o)
		}
		if removed, err := p.mesh.RemoveObserver(queue); err != nil || removed.Discarded != 1 || removed.DeadLetters != int64(max(0, 1-i)) {
			p.Errorf("with %s went %+v, %v", queue, removed, err)
		}
	}
	harness.Await(p, "the queues to be gone", func() bool {
		for _, q := range p.queues() {
			if strings.HasPrefix(q.Name, "iii.orphaned.") {
				return false
			}
		}
		return true
	})
}

// lives: a message's life is told, and where on the broker it is.
func (p *place) lives() {
	told := func(id string) string {
		r := p.mesh.Run("why", id)
		if r.Code != 0 {
			p.Errorf("why %s: %+v", id, r)
		}
		return r.Stdout
	}
	says := func(what, id string, parts ...string) {
		p.Helper()
		text := told(id)
		for _, part := range parts {
			if !strings.Contains(text, part) {
				p.Errorf("of one that %s it is not said that %q:\n%s", what, part, text)
			}
		}
	}
	ready := p.publish("lives", "idle", "x")
	p.awaitDepth("queue:lives:idle", 1)
	says("nobody takes", ready, "/queue/lives/idle", "ready", "in queue:lives:idle on rabbitmq")
	deliveries := p.work("lives", "r", client.Backoff(time.Hour), client.MaxRetries(2))
	id := p.publish("lives", "r", "x")
	d := harness.Receive(p, "a delivery", deliveries)
	says("runs", id, "in flight at")
	d.End <- errFails
	p.awaitDepth("queue:lives:r.retry.3600000", 1)
	says("waits", id, "attempt 1: failed", "it fails", "waits for attempt 2", "in queue:lives:r.retry.3600000 on rabbitmq")
	if r := p.mesh.Run("retry", "now", id); r.Code != 0 {
		p.Errorf("retry now: %+v", r)
	}
	harness.Receive(p, "the second attempt", deliveries).End <- errFails
	p.awaitDepth("queue:lives:r.dlq", 1)
	says("is dead", id, "attempt 2: failed", "let go before its time", "a dead letter (failed): it fails", "in queue:lives:r.dlq on rabbitmq")
}

// numbers: what is told of a topic agrees with the broker, over all who subscribe
// to it, and so do list and redrive.
func (p *place) numbers() {
	deliveries := make(chan harness.Taken, 10)
	handle := func(_ context.Context, d *client.Delivery) error {
		end := make(chan error)
		deliveries <- harness.Taken{Delivery: d, End: end}
		return <-end
	}
	for _, id := range []string{"one", "two"} {
		if _, err := p.client.Observe(p.Context(), "counted", handle, client.ID(id), client.MaxRetries(1)); err != nil {
			p.Fatal(err)
		}
	}
	if _, err := p.client.Publish(p.Context(), client.Topic("counted"), []byte(`{"n":1}`)); err != nil {
		p.Fatal(err)
	}
	for range 2 {
		harness.Receive(p, "a delivery", deliveries).End <- errFails
	}
	for _, id := range []string{"one", "two"} {
		p.awaitDepth("iii.counted.observer:"+id+".dlq", 1)
	}
	var stats protocol.TopicStats
	p.call(protocol.FunctionTopicStats, `{"topic":"counted"}`, &stats)
	if stats.Depth != 0 || stats.Consumers != 2 || stats.Dead != 2 {
		p.Errorf("the topic's numbers are %+v", stats)
	}
	var letters []protocol.DeadMessage
	p.call(protocol.FunctionDLQMessages, `{"topic":"counted"}`, &letters)
	if len(letters) != 2 {
		p.Errorf("%d dead letters are listed", len(letters))
	}
	var dead []protocol.DeadTopic
	p.call(protocol.FunctionDLQTopics, `{}`, &dead)
	if !slices.Contains(dead, protocol.DeadTopic{Topic: "counted", BrokerType: "rabbitmq", Messages: 2}) {
		p.Errorf("the topics with dead letters are %+v", dead)
	}
	var redriven protocol.RedriveReply
	p.call(protocol.FunctionRedrive, `{"topic":"counted"}`, &redriven)
	if redriven.Redriven != 2 {
		p.Errorf("%d are redriven", redriven.Redriven)
	}
	for range 2 {
		harness.Receive(p, "a delivery", deliveries).End <- nil
	}
}

func (p *place) call(function, input string, into any) {
	p.Helper()
	output, err := p.client.Call(p.Context(), protocol.DefaultNamespace, function, []byte(input))
	if err == nil {
		err = json.Unmarshal(output, into)
	}
	if err != nil {
		p.Fatalf("%s: %v", function, err)
	}
}

// jobsOfStrangers: what another program puts into a named queue runs if it is a
// job, and is a dead letter that says why if it is none.
func (p *place) jobsOfStrangers() {
	if _, err := p.client.Define(p.Context(), "open", client.QueueConfig{}); err != nil {
		p.Fatal(err)
	}
	ran := make(chan string, 1)
	if _, err := p.client.Handle(p.Context(), protocol.DefaultNamespace, "strangers::work", func(_ context.Context, input []byte) ([]byte, error) {
		ran <- string(input)
		return nil, nil
	}); err != nil {
		p.Fatal(err)
	}
	const queue = "iii.__fn_queue::open.queue"
	for _, headers := range []amqp.Table{nil, {protocol.HeaderFunction: "strangers::work"}} {
		p.put(queue, amqp.Publishing{Headers: headers, Body: []byte(`{"n":1}`)})
	}
	if input := harness.Receive(p, "the job", ran); input != `{"n":1}` {
		p.Errorf("it runs with %s", input)
	}
	p.awaitDepth("iii.__fn_queue::open::dlq.queue", 1)
	if letter := p.mesh.Dead("/jobs/open"); len(letter) != 1 || !strings.Contains(letter[0].Error, protocol.HeaderFunction) {
		p.Errorf("the dead letter is %+v", letter)
	}
}

// largeLetter: what is larger than an answer of NATS is a dead letter that is shown with
// its size, its headers and the beginning of its payload.
func (p *place) largeLetter() {
	const size = 9 << 20
	p.work("large", "r")
	id := uuid.NewString()
	p.put("queue:large:r", amqp.Publishing{MessageId: id, Headers: amqp.Table{"x-tenant": "acme"}, Body: bytes.Repeat([]byte("0123456789abcdef"), size/16)})
	p.awaitDepth("queue:large:r.dlq", 1)
	var letter protocol.DeadLetter
	r := p.mesh.Run("dlq", "show", id, "--json")
	if err := json.Unmarshal([]byte(r.Stdout), &letter); err != nil || r.Code != 0 {
		p.Fatalf("dlq show: %v: %+v", err, r.Stderr)
	}
	if letter.SizeBytes != size || !letter.Truncated || len(letter.Payload) < size/2 || letter.Headers["x-tenant"][0] != "acme" {
		p.Errorf("%d bytes of %d are shown, truncated %v, with the headers %v", len(letter.Payload), letter.SizeBytes, letter.Truncated, letter.Headers)
	}
}

// books: what is counted and what the broker holds is compared, and what a
// stranger put there shows; what is scheduled waits in the mesh.
func (p *place) books() {
	deliveries := p.work("books", "r", client.MaxRetries(1))
	for range 3 {
		p.publish("books", "r", "x")
	}
	harness.Receive(p, "a delivery", deliveries).End <- nil
	harness.Receive(p, "a delivery", deliveries).End <- errFails
	p.awaitDepth("queue:books:r.dlq", 1)
	p.put("queue:books:r", amqp.Publishing{})
	p.work("books", "later")
	p.publish("books", "later", "x", client.Delay(time.Hour))
	harness.Await(p, "the queue's numbers", func() bool {
		r, code := p.mesh.Reconcile()
		if code != 0 {
			p.Fatalf("the books do not balance: %+v", r.Gaps)
		}
		for _, b := range r.Brokers {
			if b.Queue == "/queue/books/later" {
				p.Errorf("what waits in the mesh is on the broker: %+v", b)
			}
			if b.Queue == "/queue/books/r" {
				return b.Broker == "rabbitmq" && fmt.Sprint(b.In, b.Out, b.Held, b.Difference) == "3 1 3 -1"
			}
		}
		return false
	})
}

// The books balance after the mesh was killed in the middle of it, and what is
// counted of the queue tells what became of its messages, but for the last moments.
func TestBooksAfterAKill(t *testing.T) {
	m := mesh(t, live.SharedRabbitMQ(t).VirtualHost(t))
	handled := make(chan string, 10_000)
	begin := func() *client.Client {
		c := m.Connect()
		harness.Work(t, c, "books", "r", func(_ context.Context, d *client.Delivery) error {
			switch n := d.Data[len(d.Data)-1]; {
			case n == '0':
				return client.Reject(errFails)
			case n%2 == 1 && d.Attempt == 1:
				return errFails
			}
			handled <- d.ID
			return nil
		}, client.Backoff(50*time.Millisecond))
		return c
	}
	c := begin()
	const each = 200
	for i := range each {
		harness.Publish(t, c, client.Queue("books", "r"), strconv.Itoa(i))
	}
	harness.Receive(t, "a message to be handled", handled)
	m.Kill()
	m.Restart()
	c = begin()
	for i := range each {
		harness.Publish(t, c, client.Queue("books", "r"), strconv.Itoa(i))
	}
	harness.Await(t, "all to come to rest", func() bool {
		q := m.Queue("books", "r")
		return q.Ready+q.InFlight+q.Waiting+q.Moving == 0 && q.Dead >= 2*each/10
	})
	r := m.Balanced()
	if len(r.Brokers) != 1 || r.Brokers[0].Held < 2*each/10 || r.Brokers[0].Difference < -each || r.Brokers[0].Difference > each {
		t.Errorf("the queue's numbers are %+v", r.Brokers)
	}
}
