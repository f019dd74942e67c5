package rabbitmq_test

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// holdingQueue: one that nobody uses lives well over twice as long as a message
// in it, and no queue of the mesh has a limit of the broker's own.
func (p *place) holdingQueue() {
	const execution, prefix = "holding", "queue:holding:r"
	p.publish(execution, "r", "x")
	deliveries := p.work(execution, "r", client.Backoff(time.Hour), client.MaxRetries(2))
	d := harness.Receive(p, "a delivery", deliveries)
	d.End <- errFails
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
	d.End <- nil
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
		d.End <- errFails
	}
	p.awaitDepth("queue:limited:r.dlq", 1)
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
	d.End <- nil
}
