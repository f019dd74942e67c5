package rabbitmq

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// stages: ready, waiting and dead are three queues, each attempt is a copy that
// tells its number, and a redrive leaves nothing behind.
func (p *place) stages() {
	const execution, queue = "stages", "queue:stages:r"
	id := p.publish(execution, "r", "x")
	p.awaitDepth(queue, 1)
	deliveries := p.work(execution, "r", client.MaxRetries(3), client.Backoff(2*time.Second))
	first := harness.Receive(p, "a delivery", deliveries)
	failed := time.Now()
	first.end <- errFails
	p.awaitDepth(queue+".retry.2000", 1)
	if n := p.depth(queue); n != 0 {
		p.Errorf("the original is still there: %d", n)
	}
	copied := p.peek(queue + ".retry.2000")
	if got := fmt.Sprint(copied.Headers[protocol.HeaderAttempt]); got != "2" || copied.MessageId != id {
		p.Errorf("the copy is attempt %s of %s", got, copied.MessageId)
	}
	second := harness.Receive(p, "the second attempt", deliveries)
	if second.Attempt != 2 || time.Since(failed) < 2*time.Second {
		p.Errorf("attempt %d came after %v", second.Attempt, time.Since(failed))
	}
	second.end <- client.Reject(errFails)
	p.awaitDepth(queue+".dlq", 1)
	letter := p.peek(queue + ".dlq")
	if letter.MessageId != id || !strings.Contains(fmt.Sprint(letter.Headers), errFails.Error()) {
		p.Errorf("the dead letter does not say what it is: %v", letter)
	}
	p.throughExchange(queue + ".dlq")
	if r := p.mesh.Run("dlq", "redrive", id); r.Code != 0 {
		p.Fatalf("redriving: %+v", r)
	}
	third := harness.Receive(p, "the redriven message", deliveries)
	if third.ID != id || third.Attempt != 1 || third.Generation != 1 {
		p.Errorf("redriven came %+v", third.Delivery)
	}
	third.end <- nil
	for _, q := range []string{queue, queue + ".retry.2000", queue + ".dlq"} {
		p.awaitDepth(q, 0)
	}
}

// peek looks at a queue's first message and leaves it there.
func (p *place) peek(queue string) amqp.Delivery {
	p.Helper()
	ch := p.channel()
	var d amqp.Delivery
	harness.Await(p, "a message of "+queue, func() (there bool) {
		var err error
		if d, there, err = ch.Get(queue, false); err != nil {
			p.Fatal(err)
		}
		return there
	})
	if err := d.Nack(false, true); err != nil {
		p.Fatal(err)
	}
	return d
}

// throughExchange: what is put into the dead-letter exchange for a queue of dead
// letters gets there.
func (p *place) throughExchange(dead string) {
	p.Helper()
	if err := p.channel().ExchangeDeclarePassive("iii.dlx", amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		p.Errorf("there is no such exchange: %v", err)
	}
	var bindings []struct {
		Key string `json:"routing_key"`
	}
	p.server.Admin(p, http.MethodGet, "/api/bindings/"+p.vhost()+"/e/iii.dlx/q/"+dead, nil, &bindings)
	if len(bindings) != 1 || bindings[0].Key != dead {
		p.Errorf("%s is bound by %v", dead, bindings)
	}
}

// holdingQueue: one that nobody uses lives well over twice as long as a message
// in it, and no queue of the mesh has a limit of the broker's own.
func (p *place) holdingQueue() {
	const execution, prefix = "holding", "queue:holding:r"
	p.publish(execution, "r", "x")
	deliveries := p.work(execution, "r", client.Backoff(time.Hour), client.MaxRetries(2))
	d := harness.Receive(p, "a delivery", deliveries)
	d.end <- errFails
	holding := prefix + ".retry." + strconv.FormatInt(time.Hour.Milliseconds(), 10)
	p.awaitDepth(holding, 1)
	seen := 0
	for _, q := range p.queues() {
		if !strings.HasPrefix(q.Name, prefix) {
			continue
		}
		seen++
		if limit, limited := q.Arguments["x-delivery-limit"]; limited && limit != float64(-1) {
			p.Errorf("%s has a limit of deliveries: %v", q.Name, limit)
		}
		if q.Type != "quorum" {
			p.Errorf("%s is a %s queue", q.Name, q.Type)
		}
		if q.Name == holding {
			ttl, _ := q.Arguments["x-message-ttl"].(float64)
			expires, _ := q.Arguments["x-expires"].(float64)
			if ttl != float64(time.Hour.Milliseconds()) || expires < 2*ttl {
				p.Errorf("messages live %v ms in %s, which lives %v", ttl, q.Name, expires)
			}
		}
	}
	if seen < 2 {
		p.Errorf("%d queues", seen)
	}
}

// names: what RabbitMQ cannot call so is refused, and nothing is declared.
func (p *place) names() {
	for _, route := range []string{"a b", "a#", "ä", "a*", "a.dlq", "a.retry.5"} {
		_, err := p.client.Publish(p.Context(), client.Queue("names", route), nil)
		if protocol.CodeOf(err) != protocol.CodeInvalidName {
			p.Errorf("route %q: %v", route, err)
		}
	}
	for _, q := range p.queues() {
		if strings.HasPrefix(q.Name, "queue:names:") {
			p.Errorf("%s was declared", q.Name)
		}
	}
}

// topic: it is a fanout exchange that anybody may bind to, and its observers'
// queues have their names.
func (p *place) topic() {
	const topic = "orders.of-the-day"
	got := make(chan string, 10)
	handle := func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data)
		return nil
	}
	if _, err := p.client.Observe(p.Context(), topic, handle, client.ID("mail")); err != nil {
		p.Fatal(err)
	}
	if _, err := p.client.Observe(p.Context(), topic, handle, client.Group("bills")); err != nil {
		p.Fatal(err)
	}
	if _, err := p.client.Publish(p.Context(), client.Topic(topic), []byte("first")); err != nil {
		p.Fatal(err)
	}
	for range 2 {
		if data := harness.Receive(p, "an observer's copy", got); data != "first" {
			p.Errorf("an observer received %q", data)
		}
	}
	ch := p.channel()
	if err := ch.ExchangeDeclarePassive("topic:"+topic, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
		p.Fatal(err)
	}
	own, err := ch.QueueDeclare("", false, true, false, false, nil)
	if err != nil {
		p.Fatal(err)
	}
	if err := ch.QueueBind(own.Name, "", "topic:"+topic, false, nil); err != nil {
		p.Fatal(err)
	}
	if _, err := p.client.Publish(p.Context(), client.Topic(topic), []byte("second")); err != nil {
		p.Fatal(err)
	}
	if d := p.peek(own.Name); string(d.Body) != "second" {
		p.Errorf("another program's queue received %q", d.Body)
	}
	for _, queue := range []string{"iii." + topic + ".observer:mail.queue", "iii." + topic + ".@bills.queue"} {
		if n := p.depth(queue); n < 0 {
			p.Errorf("there is no queue %s", queue)
		}
	}
}

// missingDeadLetters: a place that does not exist is empty, and who looks hurts
// nobody.
func (p *place) missingDeadLetters() {
	deliveries := p.work("missing", "r")
	for _, args := range [][]string{{"dlq", "ls", "missing/nothing"}, {"dlq", "redrive", "missing/nothing"}, {"dlq", "discard", "missing/nothing"}} {
		if r := p.mesh.Run(args...); r.Code != 0 {
			p.Errorf("%v: %+v", args, r)
		}
	}
	if n := p.depth("queue:missing:nothing.dlq"); n > 0 {
		p.Errorf("%d dead letters", n)
	}
	p.publish("missing", "r", "x")
	d := harness.Receive(p, "a delivery to the other consumer", deliveries)
	d.end <- nil
}

// policy: a limit of deliveries that an operator has set for all queues does not
// stand instead of the mesh's budget.
func (p *place) policy() {
	p.server.Admin(p, http.MethodPut, "/api/policies/"+p.vhost()+"/limited",
		map[string]any{"pattern": "^queue:limited:", "definition": map[string]any{"delivery-limit": 1}, "apply-to": "queues"}, nil)
	id := p.publish("limited", "r", "x")
	deliveries := p.work("limited", "r", client.MaxRetries(3), client.Backoff(10*time.Millisecond))
	for attempt := 1; attempt <= 3; attempt++ {
		d := harness.Receive(p, "an attempt", deliveries)
		if d.Attempt != attempt || d.ID != id {
			p.Errorf("attempt %d of %s, want %d of %s", d.Attempt, d.ID, attempt, id)
		}
		d.end <- errFails
	}
	p.awaitDepth("queue:limited:r.dlq", 1)
}

// conflict: a queue that is there with other arguments is named with them, and
// nobody else suffers.
func (p *place) conflict() {
	const queue = "queue:conflict:r"
	if _, err := p.channel().QueueDeclare(queue, true, false, false, false, amqp.Table{"x-max-length": int64(1000)}); err != nil {
		p.Fatal(err)
	}
	others := p.work("conflict", "other")
	p.publish("conflict", "r", "x")
	deliveries := p.work("conflict", "r")
	d := harness.Receive(p, "a delivery", deliveries)
	d.end <- nil
	p.publish("conflict", "other", "y")
	o := harness.Receive(p, "another queue's", others)
	o.end <- nil
	harness.Await(p, "the log names the queue and the argument", func() bool {
		out := p.mesh.Process().Output()
		return strings.Contains(out, "queue="+queue+" ") && strings.Contains(out, "argument=x-")
	})
}

// deleted: a queue that somebody deletes is there again for the next publish,
// which is not answered for nothing.
func (p *place) deleted() {
	const queue = "queue:deleted:r"
	p.publish("deleted", "r", "1")
	p.awaitDepth(queue, 1)
	if _, err := p.channel().QueueDelete(queue, false, false, false); err != nil {
		p.Fatal(err)
	}
	id := p.publish("deleted", "r", "2")
	deliveries := p.work("deleted", "r")
	d := harness.Receive(p, "a delivery", deliveries)
	if d.ID != id || string(d.Data) != "2" {
		p.Errorf("%q came", d.Data)
	}
	d.end <- nil
}
