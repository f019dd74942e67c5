package rabbitmq_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// holdingQueueGone: when the queue is gone in which a message is to wait, it is
// made anew, and the message is kept meanwhile.
func (p *place) holdingQueueGone() {
	deliveries := p.work("gone", "r", client.Backoff(100*time.Millisecond))
	for range 2 {
		id := p.publish("gone", "r", "x")
		first := harness.Receive(p, "the first attempt", deliveries)
		first.End <- errFails
		again := harness.Receive(p, "the second attempt", deliveries)
		if again.ID != id || again.Attempt != 2 {
			p.Errorf("attempt %d of %s came, want the second of %s", again.Attempt, again.ID, id)
		}
		again.End <- nil
		if _, err := p.channel().QueueDelete("queue:gone:r.retry.100", false, false, false); err != nil {
			p.Fatal(err)
		}
	}
}

// holdingQueueOfOthers: one that somebody else has made, for whatever, is not
// used.
func (p *place) holdingQueueOfOthers() {
	const holding = "queue:others:r.retry.100"
	if _, err := p.channel().QueueDeclare(holding, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		p.Fatal(err)
	}
	p.publish("others", "r", "x")
	deliveries := p.work("others", "r", client.Backoff(100*time.Millisecond))
	first := harness.Receive(p, "the first attempt", deliveries)
	first.End <- errFails
	again := harness.Receive(p, "the second attempt", deliveries)
	again.End <- nil
	if n := p.depth(holding); n != 0 {
		p.Errorf("%d messages are in a queue from which they do not come back", n)
	}
}

// delays: 1, 2 and 4 seconds are never shortened, and a short delay passes a long
// one.
func (p *place) delays() { p.shortPassesLong("delays", nil, nil) }

// delaysOfPriorities: nor are they otherwise where the message that waits longer is the
// more urgent.
func (p *place) delaysOfPriorities() {
	p.shortPassesLong("urgent", []client.PublishOption{client.Priority(9)}, []client.PublishOption{client.Priority(1)}, client.MaxPriority(9))
}

// shortPassesLong sees it with longer delays on a machine so slow that the longer one
// is over too when the short one is.
func (p *place) shortPassesLong(execution string, long, short []client.PublishOption, opts ...client.WorkOption) {
	var orders [][]string
	for _, backoff := range []time.Duration{time.Second, 4 * time.Second} {
		order := p.orderOfDelays(execution+backoff.String(), backoff, long, short, opts...)
		if order[len(order)-1] == "slow4" {
			return
		}
		orders = append(orders, order)
	}
	p.Errorf("the order is %v: a short delay does not pass a long one", orders)
}

// orderOfDelays is in which order the attempts come of a message that fails three
// times and of one that is published before its third and fails once. None is early.
func (p *place) orderOfDelays(execution string, backoff time.Duration, long, short []client.PublishOption, opts ...client.WorkOption) []string {
	deliveries := p.work(execution, "r", slices.Concat(opts, []client.WorkOption{client.Backoff(backoff), client.MaxRetries(4)})...)
	slow := p.publish(execution, "r", "slow", long...)
	var quick string
	failed, attempts := map[string]time.Time{}, []string{}
	for len(attempts) < 6 {
		d := harness.Receive(p, "an attempt", deliveries)
		attempts = append(attempts, string(d.Data)+strconv.Itoa(d.Attempt))
		if waited, delay := time.Since(failed[d.ID]), backoff<<d.Attempt>>2; d.Attempt > 1 && waited < delay {
			p.Errorf("attempt %d of %s came after %v, before %v", d.Attempt, d.Data, waited, delay)
		}
		failed[d.ID] = time.Now()
		switch {
		case d.ID == slow && d.Attempt == 3:
			quick = p.publish(execution, "r", "quick", short...)
			d.End <- errFails
		case d.ID == slow && d.Attempt == 4, d.ID == quick && d.Attempt == 2:
			d.End <- nil
		default:
			d.End <- errFails
		}
	}
	return attempts
}

// longestDelay: one that is longer than RabbitMQ's longest waits in turns, and does not
// become one below nothing.
func (p *place) longestDelay() {
	deliveries := p.work("longest", "r", client.Backoff(365*24*time.Hour))
	id := p.publish("longest", "r", "x")
	first := harness.Receive(p, "the first attempt", deliveries)
	first.End <- errFails
	p.awaitDepth("queue:longest:r.retry."+strconv.FormatInt((20*24*time.Hour).Milliseconds(), 10), 1)
	harness.Await(p, "it to be let go", func() bool { return p.mesh.Run("retry", "now", id).Code == 0 })
	if again := harness.Receive(p, "the second attempt", deliveries); again.ID != id || again.Attempt != 2 {
		p.Errorf("attempt %d of %s came, want the second of %s", again.Attempt, again.ID, id)
	} else {
		again.End <- nil
	}
}

// lettersTwice: a dead letter that was written twice, as it is when the connection
// is lost in between, is one for who looks, redrives or discards.
func (p *place) lettersTwice() {
	const queue, dead = "/queue/twice/r", "queue:twice:r.dlq"
	id := p.publish("twice", "r", "x")
	deliveries := p.work("twice", "r")
	d := harness.Receive(p, "a delivery", deliveries)
	d.End <- client.Reject(errFails)
	p.awaitDepth(dead, 1)
	p.double(dead)
	if letters := p.mesh.Dead(queue); len(letters) != 1 || letters[0].MessageID != id {
		p.Errorf("the dead letters are %+v", letters)
	}
	p.awaitDepth(dead, 1)
	p.double(dead)
	if n, err := p.mesh.Redrive(protocol.DeadActRequest{Queue: queue}); n != 1 || err != nil {
		p.Errorf("%d redriven (%v)", n, err)
	}
	again := harness.Receive(p, "the letter again", deliveries)
	again.End <- client.Reject(errFails)
	p.awaitDepth("queue:twice:r", 0)
	p.awaitDepth(dead, 1)
	p.double(dead)
	if n, err := p.mesh.Discard(protocol.DeadActRequest{Queue: queue}); n != 1 || err != nil {
		p.Errorf("%d discarded (%v)", n, err)
	}
	p.awaitDepth(dead, 0)
}

// lettersInOrder: however often some of the dead letters or all are looked at, they
// stay in their order.
func (p *place) lettersInOrder() {
	const queue, letters = "/queue/inorder/r", 9
	deliveries := p.work("inorder", "r")
	var want []string
	for n := range letters {
		want = append(want, p.publish("inorder", "r", "x"))
		d := harness.Receive(p, "a delivery", deliveries)
		d.End <- client.Reject(errFails)
		p.awaitDepth("queue:inorder:r.dlq", n+1)
	}
	for _, most := range []int{letters, 3, 5, letters, 3} {
		found, err := p.mesh.SomeDead(queue, most)
		if err != nil {
			p.Fatal(err)
		}
		for i := range found {
			if found[i].MessageID != want[i] {
				p.Errorf("letter %d of %d is another than before", i+1, most)
			}
		}
		if len(found) != most {
			p.Errorf("%d letters, want %d", len(found), most)
		}
	}
}

// lettersOnPages: however much the dead letters say, and in whatever order they came to
// be there, all are listed.
func (p *place) lettersOnPages() {
	const dead, n = "queue:pages:r.dlq", 150
	text := strings.Repeat("it fails for many reasons; ", 8<<10/27)
	deliveries := p.work("pages", "r")
	p.publish("pages", "r", "x")
	d := harness.Receive(p, "a delivery", deliveries)
	d.End <- client.Reject(errFails)
	p.awaitDepth(dead, 1)
	now, ch := time.Now(), p.channel()
	for i := range n {
		headers := amqp.Table{
			"Waybill-Published-At": now.UnixNano(), "Waybill-Last-Failure": now.Add(-time.Duration(i) * time.Second).UnixNano(),
			"Waybill-Reason": "failed", "Waybill-Error": text,
		}
		if err := ch.PublishWithContext(p.Context(), "", dead, true, false, amqp.Publishing{MessageId: uuid.NewString(), Headers: headers}); err != nil {
			p.Fatal(err)
		}
	}
	p.awaitDepth(dead, n+1)
	listed := make(map[string]bool)
	for _, letter := range p.mesh.Dead("/queue/pages/r") {
		listed[letter.MessageID] = true
	}
	if len(listed) != n+1 {
		p.Errorf("%d dead letters are listed, want %d", len(listed), n+1)
	}
}

// double has the one message of a queue in it twice.
func (p *place) double(queue string) {
	p.Helper()
	ch := p.channel()
	if err := ch.Confirm(false); err != nil {
		p.Fatal(err)
	}
	d, there, err := ch.Get(queue, true)
	if err != nil || !there {
		p.Fatalf("nothing is in %s (%v)", queue, err)
	}
	for range 2 {
		confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
			Headers: d.Headers, Body: d.Body, MessageId: d.MessageId, AppId: d.AppId, DeliveryMode: d.DeliveryMode, Timestamp: d.Timestamp,
		})
		if err != nil || !confirm.Wait() {
			p.Fatalf("a copy could not be put into %s (%v)", queue, err)
		}
	}
}

// A queue that does not answer the broker, as one that has lost its leader, is
// refused soon, and the others of its lane are not held up by it any more.
func TestQueueWithoutLeader(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	at := server.VirtualHost(t)
	m := harness.Start(t, harness.OnRabbitMQ(t, at)...)
	p := &place{T: t, mesh: m, server: server, amqp: at, client: m.Connect()}
	const stuck = "stuck"
	p.publish("leader", stuck, "1")
	neighbour := sameLane("leader", stuck)
	p.publish("leader", neighbour, "1")
	name := "'" + p.vhost() + "_queue:leader:" + stuck + "'"
	p.server.Control(p, "eval", "sys:suspend(whereis("+name+")).")
	refused := make(chan error, 1)
	go func() {
		_, err := p.client.Publish(p.Context(), client.Queue("leader", stuck), []byte("2"))
		for err == nil || protocol.CodeOf(err) == protocol.CodeTimeout {
			_, err = p.client.Publish(p.Context(), client.Queue("leader", stuck), []byte("2"))
		}
		refused <- err
	}()
	if err := harness.Receive(p, "an answer", refused); protocol.CodeOf(err) != protocol.CodeUnavailable {
		p.Errorf("a publish to the queue: %v", err)
	}
	for range 20 {
		p.publish("leader", neighbour, "3")
	}
	p.server.Control(p, "eval", "sys:resume(whereis("+name+")).")
	harness.Await(p, "the queue takes messages again", func() bool {
		_, err := p.client.Publish(p.Context(), client.Queue("leader", stuck), []byte("4"))
		return err == nil
	})
}

// sameLane is a route whose queue is in the lane of another's.
func sameLane(execution, route string) string {
	const lanes = 16
	lane := ledger.Of(scope.ScopedName(execution, route), lanes)
	for n := 0; ; n++ {
		other := "r" + strconv.Itoa(n)
		if ledger.Of(scope.ScopedName(execution, other), lanes) == lane {
			return other
		}
	}
}

// A handler that runs longer than RabbitMQ waits for a settlement: RabbitMQ takes
// its message back, which spends no try, and the setting is named. Other queues
// are not touched.
func TestHandlerOutrunsTheConsumerTimeout(t *testing.T) {
	r := live.SharedRabbitMQ(t)
	set := func(ms int) {
		r.Control(t, "eval", "application:set_env(rabbit, consumer_timeout, "+strconv.Itoa(ms)+").")
	}
	set(2000)
	defer set(1800000)
	m := mesh(t, r.VirtualHost(t))
	c := m.Connect()
	running, end := make(chan int, 9), make(chan struct{})
	harness.Work(t, c, "long", "r", func(_ context.Context, d *client.Delivery) error {
		running <- d.Attempt
		<-end
		return nil
	}, client.Concurrency(4))
	quick := make(chan string, 9)
	harness.Work(t, c, "long", "quick", func(_ context.Context, d *client.Delivery) error {
		quick <- d.ID
		return nil
	})
	harness.Publish(t, c, client.Queue("long", "r"), "x")
	for range 2 {
		if attempt := harness.Receive(t, "the message", running); attempt != 1 {
			t.Errorf("it came as attempt %d", attempt)
		}
		if r := harness.Publish(t, c, client.Queue("long", "quick"), "x"); harness.Receive(t, "a message of another queue", quick) != r.MessageID {
			t.Error("another message came")
		}
	}
	close(end)
	harness.Await(t, "the message to be settled", func() bool {
		q := m.Queue("long", "r")
		return q.Counters[protocol.CountAcknowledged] == 1 && q.Ready+q.InFlight+q.Waiting+q.Dead == 0
	})
	superseded := uint64(0)
	for _, s := range m.Stats() {
		superseded += s.Counters[protocol.CountSuperseded]
	}
	if superseded == 0 {
		t.Error("the first handler's answer was not superseded, though its consumer was replaced")
	}
	if n := m.Queue("long", "quick").Counters[protocol.CountAcknowledged]; n != 2 {
		t.Errorf("%d messages of the other queue were handled, want 2", n)
	}
	if out := m.Process().Output(); !strings.Contains(out, "consumer_timeout") || !strings.Contains(out, "queue=queue:long:r") {
		t.Errorf("nothing names the setting:\n%s", out)
	}
}
