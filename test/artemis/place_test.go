package artemis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-stomp/stomp/v3"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestOnTheBroker has one server, on which its parts follow each other.
func TestOnTheBroker(t *testing.T) { //nolint:tparallel // its parts count what happens to the broker
	t.Parallel()
	for _, part := range []struct {
		name string
		test func(t *testing.T, server *live.Artemis)
	}{
		{"Parts", parts}, {"Frames", frames}, {"ConnectionCut", connectionCut}, {"RouterReplaced", routerReplaced},
		{"FailingLink", failingLink}, {"Moved", moved},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, shared(t)) })
	}
}

// parts share one mesh.
func parts(t *testing.T, server *live.Artemis) {
	all := on(t, server, server.URL())
	t.Cleanup(func() { // once all have ended
		if n := server.Depth(t, "DLQ"); n != 0 {
			t.Errorf("the broker has given up %d messages of its own", n)
		}
		all.noErrors()
	})
	for name, test := range map[string]func(*place){
		"Stages": (*place).stages, "PlainClient": (*place).plainClient, "Strangers": (*place).strangers, "Topic": (*place).topic,
		"MissingDeadLetters": (*place).missingDeadLetters, "ManyDeadLetters": (*place).manyDeadLetters, "FreshFlow": (*place).freshFlow,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := all.mesh.For(t)
			test(&place{T: t, mesh: m, server: server, client: m.Connect()})
		})
	}
}

// stages: at each a message is where it is said to be, the broker holds the copy
// that waits until its time, and the attempt is to be read there.
func (p *place) stages() {
	const backoff = time.Hour
	r := p.publish(client.Queue("stages", "tasks"), "x", client.Header("x-tenant", "acme"))
	if r.Broker != "artemis" {
		p.Errorf("the receipt names the broker %q", r.Broker)
	}
	q := p.server.Queues(p)["stages/tasks"]
	if q.Messages != 1 || q.RoutingType != "ANYCAST" || !q.Durable || q.AutoDelete {
		p.Errorf("before anybody works there is %+v", q)
	}
	if stored := p.server.Browse(p, "stages/tasks"); len(stored) != 1 || !stored[0].Durable || stored[0].Body != "x" || stored[0].Properties["x-tenant"] != "acme" {
		p.Errorf("stored is %+v", stored)
	}
	deliveries, _ := p.work("stages", "tasks", client.MaxRetries(2), client.Backoff(backoff))
	first := harness.Receive(p, "the first attempt", deliveries)
	failed := time.Now()
	first.End <- errFails
	harness.Await(p, "the copy that waits", func() bool { return p.mesh.Queue("stages", "tasks").Waiting == 1 })
	waiting := p.server.Scheduled(p, "stages/tasks")
	if len(waiting) != 1 || waiting[0]["x-delivery-attempt"] != "2" {
		p.Fatalf("the broker has scheduled %+v", waiting)
	}
	due, _ := waiting[0]["_AMQ_SCHED_DELIVERY"].(float64)
	if early := failed.Add(backoff).Sub(time.UnixMilli(int64(due))); early > time.Millisecond {
		p.Errorf("it is scheduled %v early", early)
	}
	harness.Await(p, "the original to be gone", func() bool { return p.server.Depth(p, "stages/tasks") == 1 })
	p.letGo(r.MessageID)
	second := harness.Receive(p, "the second attempt", deliveries)
	if second.Attempt != 2 {
		p.Errorf("it came back as attempt %d", second.Attempt)
	}
	second.End <- errFails
	p.awaitRest("stages", "tasks", 1)
	p.deadLetter(r.MessageID)
}

// letGo has what waits not wait any longer.
func (p *place) letGo(id string) {
	p.Helper()
	if c := p.mesh.Run("retry", "now", id); c.Code != 0 {
		p.Fatalf("letting it go: %+v", c)
	}
}

// deadLetter: it is in the queue's place for them, and says what happened.
func (p *place) deadLetter(id string) {
	p.Helper()
	dead := p.server.Browse(p, "stages/tasks.dlq")
	if len(dead) != 1 || dead[0].Body != "x" || !dead[0].Durable {
		p.Fatalf("the dead letters are %+v", dead)
	}
	for name, want := range map[string]string{
		protocol.HeaderAttempt: "2", protocol.HeaderMessageID: id, "Waybill-Reason": "failed", "Waybill-Error": "no luck", "Waybill-Queue": "/queue/stages/tasks", "x-tenant": "acme",
	} {
		if fmt.Sprint(dead[0].Properties[name]) != want {
			p.Errorf("the dead letter says %s: %v, want %s", name, dead[0].Properties[name], want)
		}
	}
	harness.Await(p, "the queue to be empty", func() bool { return p.server.Depth(p, "stages/tasks") == 0 })
	if told := p.mesh.Run("why", id); !strings.Contains(told.Stdout, "in stages/tasks.dlq on artemis") {
		p.Errorf("where it is: %+v", told)
	}
}

// plainClient: whoever knows STOMP reads a queue by its scoped name, and finds
// each header once, on the copy of a retry too.
func (p *place) plainClient() {
	headers := map[string]string{"x-tenant": "acme", "x-mark": `a:b\c`, "x-empty": "", "content-type": "application/json"}
	var opts []client.PublishOption
	for name, value := range headers {
		opts = append(opts, client.Header(name, value))
	}
	r := p.publish(client.Queue("plain", "tasks"), "\x00\xff{}", opts...)
	deliveries, w := p.work("plain", "tasks", client.Backoff(time.Hour))
	harness.Receive(p, "the first attempt", deliveries).End <- errFails
	harness.Await(p, "the copy that waits", func() bool { return p.mesh.Queue("plain", "tasks").Waiting == 1 })
	if err := w.Stop(p.Context()); err != nil {
		p.Fatal(err)
	}
	p.letGo(r.MessageID)
	conn := p.stranger()
	sub, err := conn.Subscribe("/queue/plain/tasks", stomp.AckClientIndividual, stomp.SubscribeOpt.Header("destination-type", "ANYCAST"))
	if err != nil {
		p.Fatal(err)
	}
	m := harness.Receive(p, "the second copy", sub.C)
	if m.Err != nil || string(m.Body) != "\x00\xff{}" {
		p.Fatalf("it has %q, %v", m.Body, m.Err)
	}
	headers["x-delivery-attempt"] = "2"
	for name, want := range headers {
		if got := m.Header.GetAll(name); len(got) != 1 || got[0] != want {
			p.Errorf("%s is %q, want %q once", name, got, want)
		}
	}
	seen := map[string]bool{}
	for i := range m.Header.Len() {
		name, value := m.Header.GetAt(i)
		if seen[name] && name != "destination-type" { // which the broker says once more
			p.Errorf("%s is there again, with %q", name, value)
		}
		seen[name] = true
	}
	if err := conn.Ack(m); err != nil {
		p.Fatal(err)
	}
	harness.Await(p, "the queue to be empty", func() bool { return p.server.Depth(p, "plain/tasks") == 0 })
}

// strangers: what they put into a queue is handled or dead-lettered with the
// budget of any message, whatever its headers say.
func (p *place) strangers() {
	p.publish(client.Queue("foreign", "tasks"), "ours    ")
	var mu sync.Mutex
	runs := map[string][]int{}
	p.handle("foreign", "tasks", func(_ context.Context, d *client.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		name := string(d.Data[:min(len(d.Data), 8)])
		runs[name] = append(runs[name], d.Attempt)
		if d.Header("Waybill-Source") != "" || d.Header("JMSXDeliveryCount") != "" || d.Header("_AMQ_GROUP_ID") != "" {
			p.Errorf("%s has headers that only the broker or the mesh sets", name)
		}
		if strings.HasPrefix(name, "fail") {
			return errFails
		}
		return nil
	}, client.Backoff(20*time.Millisecond))
	conn := p.stranger()
	const to = "/queue/foreign/tasks"
	p.put(conn, to, "plain   ")
	p.put(conn, to, "fail-bad", protocol.HeaderAttempt, "99", "JMSXDeliveryCount", "50", "Waybill-Generation", "7", "Waybill-Source", "me", "redelivered", "true")
	p.put(conn, to, "fail-not", protocol.HeaderAttempt, "soon", "two\nlines", "x\ny", "JMSXGroupID", "g", "priority", "9")
	p.put(conn, to, "\xff\xfe not \x00")
	p.put(conn, to, "big     "+strings.Repeat("x", 1<<20-8))
	p.put(conn, to, "later   ", "AMQ_SCHEDULED_TIME", strconv.FormatInt(time.Now().Add(300*time.Millisecond).UnixMilli(), 10))
	if err := conn.Send(to, "", []byte("text    "), stomp.SendOpt.NoContentLength, stomp.SendOpt.Receipt); err != nil { // neither bytes nor persistent
		p.Fatal(err)
	}
	harness.Await(p, "all to come to rest", func() bool {
		q := p.mesh.Queue("foreign", "tasks")
		return q.Dead == 2 && q.Ready+q.InFlight+q.Waiting == 0 && q.Counters[protocol.CountAcknowledged] == 6
	})
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"fail-bad", "fail-not"} {
		if fmt.Sprint(runs[name]) != "[1 2 3]" {
			p.Errorf("%s ran as attempts %v", name, runs[name])
		}
	}
	if len(runs) != 8 {
		p.Errorf("these ran: %v", runs)
	}
}

// topic: a plain client and the observers each receive what is published, and what
// the client sends.
func (p *place) topic() {
	got := make(chan string, 10)
	for _, opt := range []client.WorkOption{client.ID("audit"), client.Group("mail")} {
		if _, err := p.client.Observe(p.Context(), "orders", func(_ context.Context, d *client.Delivery) error {
			got <- string(d.Data)
			return nil
		}, opt); err != nil {
			p.Fatal(err)
		}
	}
	conn := p.stranger()
	sub, err := conn.Subscribe("/topic/orders", stomp.AckAuto)
	if err != nil {
		p.Fatal(err)
	}
	p.put(conn, "/queue/topic/mark", "") // what is answered after it is there
	p.publish(client.Topic("orders"), "ours")
	if m := harness.Receive(p, "the stranger's copy", sub.C); string(m.Body) != "ours" {
		p.Errorf("a plain client has %q, %v", m.Body, m.Err)
	}
	p.put(conn, "/topic/orders", "theirs")
	seen := map[string]int{}
	for range 4 {
		seen[harness.Receive(p, "the observers' copies", got)]++
	}
	if seen["ours"] != 2 || seen["theirs"] != 2 {
		p.Errorf("the observers have %v", seen)
	}
}

// missingDeadLetters: asking for those of a queue that has none answers empty, and
// hurts nobody.
func (p *place) missingDeadLetters() {
	deliveries, _ := p.work("missing", "tasks")
	p.publish(client.Queue("missing", "tasks"), "before")
	harness.Receive(p, "the one before", deliveries).End <- nil
	for _, command := range [][]string{{"dlq", "ls", "/queue/missing/tasks"}, {"dlq", "redrive", "/queue/missing/tasks"}, {"dlq", "ls", "/queue/missing/never"}} {
		if c := p.mesh.Run(command...); c.Code != 0 {
			p.Errorf("%v: %+v", command, c)
		}
	}
	p.publish(client.Queue("missing", "tasks"), "after")
	harness.Receive(p, "the one after", deliveries).End <- nil
}

// manyDeadLetters: all are listed, each once, however much the broker gives at a
// time, and redriven all.
func (p *place) manyDeadLetters() {
	const letters = 300
	var again atomic.Int64
	p.handle("many", "tasks", func(_ context.Context, d *client.Delivery) error {
		if d.Generation == 0 {
			return client.Reject(errFails)
		}
		again.Add(1)
		return nil
	}, client.Concurrency(50))
	for range letters {
		p.publish(client.Queue("many", "tasks"), strings.Repeat("x", 500))
	}
	p.awaitRest("many", "tasks", letters)
	listed := map[string]bool{}
	for _, l := range p.mesh.Dead("/queue/many/tasks") {
		listed[l.MessageID] = true
	}
	if len(listed) != letters {
		p.Errorf("%d dead letters are listed, of %d", len(listed), letters)
	}
	if n, err := p.mesh.Redrive(protocol.DeadActRequest{Queue: "/queue/many/tasks"}); err != nil || n != letters {
		p.Errorf("%d are redriven, %v", n, err)
	}
	p.awaitRest("many", "tasks", 0)
	if n := again.Load(); n != letters {
		p.Errorf("%d are handled again", n)
	}
}

// freshFlow: messages that fail again and again hold up nobody behind them.
func (p *place) freshFlow() {
	const fresh, failing = 100, 10
	var done sync.WaitGroup
	done.Add(fresh)
	p.handle("flow", "tasks", func(_ context.Context, d *client.Delivery) error {
		if string(d.Data) == "fails" {
			return errFails
		}
		done.Done()
		return nil
	}, client.Concurrency(failing), client.Backoff(time.Hour))
	for range failing {
		p.publish(client.Queue("flow", "tasks"), "fails")
	}
	for range fresh {
		p.publish(client.Queue("flow", "tasks"), "fresh")
	}
	all := make(chan struct{})
	go func() { done.Wait(); close(all) }()
	harness.Receive(p, "the fresh ones", all)
	harness.Await(p, "those that fail to wait", func() bool { return p.mesh.Queue("flow", "tasks").Waiting == failing })
}
