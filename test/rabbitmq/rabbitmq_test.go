// Package rabbitmq_test looks at a mesh on a real RabbitMQ with RabbitMQ's own
// tools: where messages are at each stage, what strangers may do, and what becomes
// of it all when the broker goes away.
package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// mesh starts a mesh whose queues are at an address.
func mesh(t *testing.T, address string) *harness.Mesh {
	t.Helper()
	return harness.Start(t, harness.OnRabbitMQ(t, address)...)
}

// stranger is a program that uses the broker without the mesh.
func stranger(t *testing.T, address string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
			t.Errorf("closing: %v", err)
		}
	})
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func depth(t *testing.T, ch *amqp.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatalf("%s: %v", queue, err)
	}
	return q.Messages
}

// At each stage a message is where it is said to be, and its attempt is to be read
// there.
func TestWhereMessagesAre(t *testing.T) {
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	m, ch := mesh(t, address), stranger(t, address)
	c := m.Connect()
	r := harness.Publish(t, c, client.Queue("e1", "tasks"), "x", client.Header("x-tenant", "acme"))
	if r.Broker != "rabbitmq" {
		t.Errorf("the receipt names the broker %q", r.Broker)
	}
	if n := depth(t, ch, "queue:e1:tasks"); n != 1 {
		t.Errorf("%d messages in the queue before anybody works", n)
	}
	attempts := make(chan int, 10)
	harness.Work(t, c, "e1", "tasks", func(_ context.Context, d *client.Delivery) error {
		attempts <- d.Attempt
		return errors.New("no luck")
	}, client.MaxRetries(2), client.Backoff(time.Hour))
	harness.Receive(t, "the first attempt", attempts)
	harness.Await(t, "the copy that waits", func() bool { return m.Queue("e1", "tasks").Waiting == 1 })
	if n := depth(t, ch, "queue:e1:tasks.retry.3600000"); n != 1 {
		t.Errorf("%d messages wait", n)
	}
	if out := m.Run("retry", "now", r.MessageID); out.Code != 0 {
		t.Errorf("it is not let go: %+v", out)
	}
	harness.Receive(t, "the second attempt", attempts)
	harness.Await(t, "the dead letter", func() bool { return m.Queue("e1", "tasks").Dead == 1 })
	if err := ch.ExchangeDeclarePassive("iii.dlx", amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		t.Fatalf("the dead-letter exchange: %v", err)
	}
	letter, there, err := ch.Get("queue:e1:tasks.dlq", true)
	if err != nil || !there {
		t.Fatalf("the dead letter: %v, %v", there, err)
	}
	for name, want := range map[string]any{
		protocol.HeaderAttempt: int64(2), "Waybill-Reason": "failed", "Waybill-Error": "no luck", "Waybill-Queue": "/queue/e1/tasks", "x-tenant": "acme",
	} {
		if letter.Headers[name] != want {
			t.Errorf("the dead letter says %s: %v, want %v", name, letter.Headers[name], want)
		}
	}
	if letter.MessageId != r.MessageID || string(letter.Body) != "x" {
		t.Errorf("the dead letter is %s with %q", letter.MessageId, letter.Body)
	}
}

// A topic is a fanout exchange that any program may bind to.
func TestTopicsAreExchanges(t *testing.T) {
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	m, ch := mesh(t, address), stranger(t, address)
	c := m.Connect()
	got := make(chan string, 2)
	for _, opt := range []client.WorkOption{client.ID("audit"), client.Group("mail")} {
		if _, err := c.Observe(t.Context(), "orders", func(_ context.Context, d *client.Delivery) error {
			got <- string(d.Data)
			return nil
		}, opt); err != nil {
			t.Fatal(err)
		}
	}
	own, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err == nil {
		err = ch.QueueBind(own.Name, "", "topic:orders", false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	harness.Publish(t, c, client.Topic("orders"), "o-1")
	for range 2 {
		if data := harness.Receive(t, "the observers' copies", got); data != "o-1" {
			t.Errorf("an observer has %q", data)
		}
	}
	harness.Await(t, "the stranger's copy", func() bool { return depth(t, ch, own.Name) == 1 })
	for _, queue := range []string{"iii.orders.observer:audit.queue", "iii.orders.observer:audit.dlq", "iii.orders.@mail.queue", "iii.orders.@mail.dlq"} {
		depth(t, ch, queue)
	}
}

// What strangers put into a queue is handled or dead-lettered with the budget of
// any message, whatever its headers say.
func TestStrangersMessages(t *testing.T) {
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	m, ch := mesh(t, address), stranger(t, address)
	c := m.Connect()
	harness.Publish(t, c, client.Queue("e1", "tasks"), "ours")
	var mu sync.Mutex
	runs := map[string][]int{}
	harness.Work(t, c, "e1", "tasks", func(_ context.Context, d *client.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		name := string(d.Data[:min(len(d.Data), 8)])
		runs[name] = append(runs[name], d.Attempt)
		if d.Header("x-death") != "" || d.Header("Waybill-Source") != "" {
			t.Errorf("%s has headers that only the broker or the mesh sets", name)
		}
		if strings.HasPrefix(name, "fail") {
			return errors.New("no luck")
		}
		return nil
	}, client.Backoff(20*time.Millisecond))
	big := "big     " + strings.Repeat("x", 1<<20-8)
	forged := amqp.Table{
		protocol.HeaderAttempt: int32(99), "x-death": []any{amqp.Table{"count": int64(50), "queue": "queue:e1:tasks", "reason": "expired"}},
		"Waybill-Generation": "7", "Waybill-Source": "me", "x-delivery-count": int64(40), "two\nlines": "x",
	}
	many := amqp.Table{}
	for i := range 12 {
		many[fmt.Sprint("h", i)] = strings.Repeat("x", 10_000) // nearly a whole frame
	}
	for name, message := range map[string]amqp.Publishing{
		"plain   ": {}, "fail-bad": {Headers: forged}, "fail-big": {Headers: many}, "fail-not": {Headers: amqp.Table{protocol.HeaderAttempt: "soon"}},
		"\xff\xfe not ": {ContentType: "application/octet-stream"}, big: {Headers: amqp.Table{"n": int8(3)}},
	} {
		message.Body = []byte(name)
		if err := ch.PublishWithContext(t.Context(), "", "queue:e1:tasks", true, false, message); err != nil {
			t.Fatal(err)
		}
	}
	harness.Await(t, "all to come to rest", func() bool {
		q := m.Queue("e1", "tasks")
		return q.Dead == 3 && q.Ready+q.InFlight+q.Waiting == 0 && q.Counters[protocol.CountAcknowledged] == 4
	})
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"fail-bad", "fail-not", "fail-big"} {
		if fmt.Sprint(runs[name]) != "[1 2 3]" {
			t.Errorf("%s ran as attempts %v", name, runs[name])
		}
	}
}

// A queue that is there with other arguments is used as it is, and the others are
// not hurt. Whoever moves here from a system with the same names finds what is in
// its queues.
func TestQueuesDeclaredByOthers(t *testing.T) {
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	ch := stranger(t, address)
	movedBacklog(t, ch)
	if _, err := ch.QueueDeclare("queue:e1:old", true, false, false, false, amqp.Table{"x-queue-mode": "lazy"}); err != nil {
		t.Fatal(err)
	}
	if err := ch.PublishWithContext(t.Context(), "", "queue:e1:old", true, false, amqp.Publishing{Body: []byte("backlog")}); err != nil {
		t.Fatal(err)
	}
	m := mesh(t, address)
	c := m.Connect()
	got := make(chan string, 10)
	for _, route := range []string{"old", "new"} {
		harness.Work(t, c, "e1", route, func(_ context.Context, d *client.Delivery) error {
			got <- string(d.Data)
			return nil
		})
	}
	harness.Publish(t, c, client.Queue("e1", "old"), "fresh")
	harness.Publish(t, c, client.Queue("e1", "new"), "other")
	seen := map[string]bool{}
	for range 3 {
		seen[harness.Receive(t, "messages of both queues", got)] = true
	}
	if len(seen) != 3 {
		t.Errorf("got %v", seen)
	}
	harness.Await(t, "the difference to be told", func() bool {
		out := m.Process().Output()
		return strings.Contains(out, "queue=queue:e1:old") && strings.Contains(out, "argument=x-")
	})
	takesMovedBacklog(t, c)
}

// movedBacklog leaves messages where another system has those of an observer, a
// group and a named queue.
func movedBacklog(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	err := ch.ExchangeDeclare("iii.moved.exchange", amqp.ExchangeFanout, true, false, false, false, nil)
	for _, queue := range []string{"iii.moved.observer:audit.queue", "iii.moved.@mail.queue", "iii.__fn_queue::moved.queue"} {
		_, failed := ch.QueueDeclare(queue, true, false, false, false, nil)
		err = errors.Join(err, failed)
		if !strings.Contains(queue, "__fn_queue") {
			err = errors.Join(err, ch.QueueBind(queue, "", "iii.moved.exchange", false, nil))
		}
	}
	job := amqp.Publishing{Headers: amqp.Table{protocol.HeaderFunction: "moved::work"}, Body: []byte(`"job"`)}
	err = errors.Join(err,
		ch.PublishWithContext(t.Context(), "iii.moved.exchange", "", true, false, amqp.Publishing{Body: []byte(`"left"`)}),
		ch.PublishWithContext(t.Context(), "", "iii.__fn_queue::moved.queue", true, false, job))
	if err != nil {
		t.Fatal(err)
	}
}

func takesMovedBacklog(t *testing.T, c *client.Client) {
	t.Helper()
	got := make(chan string, 10)
	for _, opt := range []client.WorkOption{client.ID("audit"), client.Group("mail")} {
		if _, err := c.Observe(t.Context(), "moved", func(_ context.Context, d *client.Delivery) error {
			got <- string(d.Data)
			return nil
		}, opt); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Handle(t.Context(), protocol.DefaultNamespace, "moved::work", func(_ context.Context, input []byte) ([]byte, error) {
		got <- string(input)
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Define(t.Context(), "moved", client.QueueConfig{}); err != nil {
		t.Fatal(err)
	}
	harness.Publish(t, c, client.Topic("moved"), `"fresh"`)
	seen := map[string]int{}
	for range 5 {
		seen[harness.Receive(t, "the backlog and what is fresh", got)]++
	}
	if seen[`"left"`] != 2 || seen[`"fresh"`] != 2 || seen[`"job"`] != 1 {
		t.Errorf("handled are %v", seen)
	}
}

// A connection that is cut while a handler runs gives its message back: what the
// handler answers is superseded, and the message is handled again.
func TestConnectionCutUnderAHandler(t *testing.T) {
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	at, err := amqp.ParseURI(address)
	if err != nil {
		t.Fatal(err)
	}
	link := harness.NewLink(t, net.JoinHostPort(at.Host, strconv.Itoa(at.Port)))
	m := mesh(t, "amqp://guest:guest@"+link.Address()+"/"+at.Vhost)
	c := m.Connect()
	running, release := make(chan int, 4), make(chan struct{})
	harness.Work(t, c, "e1", "tasks", func(ctx context.Context, d *client.Delivery) error {
		running <- d.Attempt
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	harness.Publish(t, c, client.Queue("e1", "tasks"), "x")
	harness.Receive(t, "the handler to run", running)
	link.Cut()
	harness.Await(t, "the broker to be missed", func() bool {
		_, err := c.Publish(t.Context(), client.Queue("e1", "other"), nil)
		return protocol.CodeOf(err) == protocol.CodeUnavailable
	})
	link.Mend()
	if attempt := harness.Receive(t, "the message again", running); attempt != 1 {
		t.Errorf("a lost connection has spent an attempt: it comes as %d", attempt)
	}
	close(release)
	harness.Await(t, "the message to be settled", func() bool {
		q := m.Queue("e1", "tasks")
		return q.Counters[protocol.CountAcknowledged] == 1 && q.Ready+q.InFlight+q.Waiting+q.Dead == 0
	})
	superseded := uint64(0)
	for _, s := range m.Stats() {
		superseded += s.Counters[protocol.CountSuperseded]
	}
	if superseded == 0 {
		t.Error("the first handler's answer was not superseded")
	}
}

// A broker that cannot be reached fails the start, with its address and without
// its password.
func TestUnreachableBroker(t *testing.T) {
	p := harness.Up(t, filepath.Join(t.TempDir(), "data"), harness.OnRabbitMQ(t, "amqp://guest:s3cret@127.0.0.1:1/")...)
	if code := p.Exit(harness.Guard); code == 0 {
		t.Error("it exits with 0")
	}
	out := p.Output()
	if !strings.Contains(out, "127.0.0.1:1") || strings.Contains(out, "s3cret") {
		t.Errorf("it says %q", out)
	}
}
