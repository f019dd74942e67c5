// Package redis_test looks at a mesh on a real Redis, with a client of Redis beside
// it: what is on a channel, what is dropped and how that shows, what is refused, and
// what becomes of it all when Redis goes away.
package redis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// place is a mesh and the Redis that has its topics.
type place struct {
	*testing.T
	mesh   *harness.Mesh
	server *live.Redis
	client *client.Client
	redis  *redis.Client // a program that does not know the mesh
}

// TestRedis has one mesh for all, which is done to Redis last that ends it.
func TestRedis(t *testing.T) {
	server := live.StartRedis(t)
	m := harness.Start(t, harness.OnRedis(t, server.URL(), "")...)
	at, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	stranger := redis.NewClient(at)
	t.Cleanup(func() { stranger.Close() })
	p := &place{t, m, server, m.Connect(), stranger}
	for _, c := range []struct {
		name string
		test func(*place)
	}{
		{"Envelope", (*place).envelope}, {"Stranger", (*place).stranger}, {"CommandLine", (*place).commandLine}, {"Refused", (*place).refused}, {"Dropped", (*place).dropped}, {"Killed", (*place).killed}, {"Stopped", (*place).stopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := *p
			of.T, of.mesh = t, m.For(t)
			c.test(&of)
		})
	}
}

func (p *place) publish(topic, data string, opts ...client.PublishOption) *client.Receipt {
	p.Helper()
	return harness.Publish(p, p.client, client.Topic(topic), data, opts...)
}

func (p *place) observe(topic, id string, h client.Handler, opts ...client.WorkOption) {
	p.Helper()
	if _, err := p.client.Observe(p.Context(), topic, h, append(opts, client.ID(id))...); err != nil {
		p.Fatal(err)
	}
}

// envelope: any program may subscribe to a topic's channel; what is there is JSON, with
// the message's headers and so its trace. It is there also if nobody observes.
func (p *place) envelope() {
	sub := p.redis.Subscribe(p.Context(), "topic:orders.created")
	defer sub.Close()
	if _, err := sub.Receive(p.Context()); err != nil {
		p.Fatal(err)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := p.publish("orders.created", `{"n":1}`, client.Header("traceparent", parent), client.Header("x-tenant", "acme"))
	m, err := sub.ReceiveMessage(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	var e struct {
		Waybill int               `json:"waybill"`
		ID      string            `json:"id"`
		Topic   string            `json:"topic"`
		Data    string            `json:"data"`
		Headers map[string]string `json:"headers"`
	}
	if err := json.Unmarshal([]byte(m.Payload), &e); err != nil {
		p.Fatalf("on the channel is %s: %v", m.Payload, err)
	}
	if e.Waybill != 1 || e.ID != r.MessageID || e.Topic != "orders.created" || e.Data != `{"n":1}` || e.Headers["x-tenant"] != "acme" ||
		!strings.Contains(e.Headers["traceparent"], "0af7651916cd43dd8448eb211c80319c") {
		p.Errorf("on the channel is %s", m.Payload)
	}
	if r.Broker != "redis" || r.Durability != protocol.DurabilityNone || r.Listeners != 0 {
		p.Errorf("the receipt is %+v", r)
	}
}

// stranger: what another program publishes on a topic's channel reaches who observes
// it, as it is.
func (p *place) stranger() {
	got := make(chan *client.Delivery, 1)
	p.observe("theirs", "a", func(_ context.Context, d *client.Delivery) error {
		got <- d
		return nil
	})
	for _, payload := range []string{`{"waybill":"no"}`, "\x00\xff plain"} {
		if n, err := p.redis.Publish(p.Context(), "topic:theirs", payload).Result(); err != nil || n != 1 {
			p.Fatalf("%d receive it, %v", n, err)
		}
		if d := harness.Receive(p, "what a stranger published", got); string(d.Data) != payload || d.Attempt != 1 {
			p.Errorf("it came as %q, attempt %d", d.Data, d.Attempt)
		}
	}
}

// commandLine: who observes with the command and asks for nothing is taken.
func (p *place) commandLine() {
	observer := p.mesh.Spawn("observe", "shell", "--id", "a", "--count", "1")
	harness.Await(p, "the command to have a message", func() bool { return p.publish("shell", "hello").Listeners == 1 })
	if code := observer.Exit(harness.Guard); code != 0 || !strings.Contains(observer.Output(), "hello") {
		p.Errorf("it ends with %d and says\n%s", code, observer.Output())
	}
}

// refused: what Redis does not have is refused in the words people know.
func (p *place) refused() {
	const none = "RedisAdapter does not support DLQ operations (pub/sub only)"
	for _, call := range [][2]string{
		{protocol.FunctionRedrive, `{"queue":"orders"}`},
		{protocol.FunctionRedriveMessage, `{"topic":"orders","message_id":"0190a1b2-0000-7000-8000-000000000000"}`},
		{protocol.FunctionRedriveMessage, `{"topic":"orders","message_id":"none-of-these"}`},
		{protocol.FunctionDiscardMessage, `{"queue":"orders","message_id":"0190a1b2-0000-7000-8000-000000000000"}`},
		{protocol.FunctionDLQMessages, `{"topic":"orders"}`},
	} {
		if out := p.mesh.Run("call", call[0], call[1]); out.Code == 0 || !strings.Contains(out.Stderr, none) {
			p.Errorf("%s: code %d, %s%s", call, out.Code, out.Stdout, out.Stderr)
		}
	}
	if out := p.mesh.Run("call", protocol.FunctionTopicStats, `{"topic":"orders"}`); out.Code != 0 || !strings.Contains(out.Stdout, `"no_dead_letters":"`+none) {
		p.Errorf("the numbers of a topic: code %d, %s%s", out.Code, out.Stdout, out.Stderr)
	}
	for _, args := range [][]string{{"pub", "queue", "e1", "tasks", "x"}, {"queue", "define", "mail"}} {
		if out := p.mesh.Run(args...); out.Code == 0 || !strings.Contains(out.Stderr, string(protocol.CodeUnsupported)) {
			p.Errorf("waybill %v: code %d, %s%s", args, out.Code, out.Stdout, out.Stderr)
		}
	}
}

// dropped: an observer that is too slow misses messages, and each of them is counted.
func (p *place) dropped() {
	const most = 10_000 // that wait for one
	begun, end := make(chan bool, 1), make(chan struct{})
	p.observe("flood", "slow", func(context.Context, *client.Delivery) error {
		select {
		case begun <- true:
		default:
		}
		<-end
		return nil
	}, client.Concurrency(1))
	p.publish("flood", "0")
	harness.Receive(p, "the first", begun)
	const more = most + 500
	pipe := p.redis.Pipeline()
	for i := range more {
		pipe.Publish(p.Context(), "topic:flood", strconv.Itoa(i+1))
	}
	if _, err := pipe.Exec(p.Context()); err != nil {
		p.Fatal(err)
	}
	const queue = "flood::observer:slow"
	var q protocol.QueueInfo
	harness.Await(p, "all to have arrived", func() bool {
		q = p.mesh.QueueNamed(queue)
		return q.Counters[protocol.CountPublished] == more+1
	})
	if dropped := q.Counters[protocol.CountDropped]; dropped == 0 || dropped > more+1-most {
		p.Errorf("%d were dropped, want %d", dropped, more+1-most)
	}
	close(end)
	harness.Await(p, "the rest to be handled", func() bool {
		q = p.mesh.QueueNamed(queue)
		return q.Counters[protocol.CountAcknowledged]+q.Counters[protocol.CountDiscarded] == more+1 && q.Ready+q.InFlight == 0
	})
	if q.Counters[protocol.CountDiscarded] < q.Counters[protocol.CountDropped] {
		p.Errorf("what was dropped is not counted as ended: %v", q.Counters)
	}
	if out := p.mesh.Process().Output(); !strings.Contains(out, "dropped") {
		p.Errorf("the log does not tell of it:\n%s", out)
	}
	p.mesh.Balanced()
}

// killed: while Redis is away publishes are refused and the mesh is not ready; then
// messages pass again.
func (p *place) killed() {
	got := make(chan string, 64)
	p.observe("alive", "a", func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data)
		return nil
	})
	p.server.Kill(p)
	harness.Await(p, "a publish to be refused", func() bool {
		_, err := p.client.Publish(p.Context(), client.Topic("alive"), []byte("lost"))
		return protocol.CodeOf(err) == protocol.CodeUnavailable && strings.Contains(err.Error(), p.server.Address())
	})
	harness.Await(p, "the mesh to say so", func() bool { return !p.mesh.Ready() })
	p.server.Start(p)
	harness.Await(p, "a message to pass again", func() bool {
		if _, err := p.client.Publish(p.Context(), client.Topic("alive"), []byte("again")); err != nil {
			return false
		}
		select {
		case data := <-got:
			return data == "again"
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	harness.Await(p, "the mesh to be ready", p.mesh.Ready)
}

// stopped: the log has told of all that were dropped when the mesh ends.
func (p *place) stopped() {
	dropped := p.mesh.QueueNamed("flood::observer:slow").Counters[protocol.CountDropped]
	p.mesh.Terminate()
	if code := p.mesh.Process().Exit(harness.Guard); code != 0 {
		p.Errorf("it ends with %d", code)
	}
	told := uint64(0)
	for line := range strings.Lines(p.mesh.Process().Output()) {
		if _, n, is := strings.Cut(strings.TrimSpace(line), " messages="); is && strings.Contains(line, "queue=flood::observer:slow") {
			some, err := strconv.ParseUint(n, 10, 64)
			if err != nil {
				p.Errorf("%s: %v", line, err)
			}
			told += some
		}
	}
	if told < dropped {
		p.Errorf("the log tells of %d, dropped were %d", told, dropped)
	}
}

// TestMovedHere: a topic moves to Redis whose observer has gone, and back. What was kept
// for it stays where it is, in sight, and others observe the topic from then on.
func TestMovedHere(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	nothing := func(context.Context, *client.Delivery) error { return nil }
	observe := func(id string) *client.Worker {
		t.Helper()
		w, err := c.Observe(t.Context(), "moves", nothing, client.ID(id))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if err := observe("gone").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	harness.Publish(t, c, client.Topic("moves"), "x")
	brokers := fmt.Sprintf("adapter: {name: builtin}\nbrokers:\n  live: {name: redis, config: {redis_url: %q}}\n", live.SharedRedis(t).URL())
	m.Apply(brokers + "routes:\n  - {pattern: /topic/moves, broker: live}\n")
	observe("there")
	if r := harness.Publish(t, c, client.Topic("moves"), "y"); r.Broker != "live" || r.Listeners != 1 {
		t.Errorf("the receipt is %+v", r)
	}
	if o, listed := m.Observer("moves::observer:gone"); !listed || o.State != protocol.ObserverOrphan || m.QueueNamed("moves::observer:gone").Ready != 1 {
		t.Errorf("who has gone is %+v (listed: %v)", o, listed)
	}
	m.Apply(brokers)
	observe("gone")
	harness.Await(t, "what was kept to be handled", func() bool { return m.QueueNamed("moves::observer:gone").Counters[protocol.CountAcknowledged] == 1 })
}

// A mesh does not start on a Redis that is not there, nor with a named queue that Redis
// would have: it says why.
func TestDoesNotStart(t *testing.T) {
	server := live.SharedRedis(t)
	for name, c := range map[string]struct{ url, more, says string }{
		"unreachable": {"redis://127.0.0.1:1", "", "127.0.0.1:1"},
		"named queue": {server.URL(), "queue_configs:\n  mail: {}\n", "queue_configs.mail: unsupported"},
	} {
		m := harness.Up(t, t.TempDir(), harness.OnRedis(t, c.url, c.more)...)
		if code := m.Exit(harness.Guard); code == 0 || !strings.Contains(m.Output(), c.says) {
			t.Errorf("%s: code %d, it says\n%s", name, code, m.Output())
		}
	}
}
