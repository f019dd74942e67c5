package rabbitmq_test

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
	handle := func(context.Context, *client.Delivery) error { return nil }
	long := strings.Repeat("k", 200)
	_, observed := p.client.Observe(p.Context(), "names."+long[:50], handle, client.ID(long))
	_, worked := p.client.Work(p.Context(), "names", long+"."+long, handle)
	for what, err := range map[string]error{"an observer": observed, "a worker": worked} {
		if protocol.CodeOf(err) != protocol.CodeInvalidName {
			p.Errorf("%s of a queue with too long a name: %v", what, err)
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

// others is a queue as somebody else has made it.
type others struct {
	route                          string
	passing, autoDelete, exclusive bool // passing: not durable
	args                           amqp.Table
	dead                           bool   // its dead letters' instead
	refused                        string // what the mesh says of it; empty: it is used
}

var queuesOfOthers = []others{
	{route: "ttl", args: amqp.Table{"x-message-ttl": int32(3_600_000)}, refused: "x-message-ttl is 3600000"},
	{route: "expires", args: amqp.Table{"x-queue-type": "quorum", "x-expires": int64(3_600_001)}, refused: "x-expires is 3600001"},
	{route: "length", args: amqp.Table{"x-max-length": int32(1000)}, refused: "x-max-length is 1000"},
	{route: "bytes", args: amqp.Table{"x-max-length-bytes": int32(9000), "x-overflow": "drop-head", "x-dead-letter-exchange": "theirs"}, refused: "x-max-length-bytes is 9000"},
	{route: "many", args: amqp.Table{"x-queue-mode": "lazy", "x-max-priority": uint8(5), "x-dead-letter-exchange": "theirs", "x-dead-letter-routing-key": "7", "x-message-ttl": int32(3_600_002)}, refused: "x-message-ttl is 3600002"},
	{route: "passing", passing: true, refused: "durable is false"},
	{route: "auto", autoDelete: true, refused: "auto_delete is true"},
	{route: "exclusive", exclusive: true, refused: "exclusive is true"},
	{route: "stream", args: amqp.Table{"x-queue-type": "stream"}, refused: "x-queue-type is stream"},
	{route: "limit", args: amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(5)}, refused: "x-delivery-limit is 5"},
	{route: "letters", dead: true, args: amqp.Table{"x-message-ttl": int32(3_600_003)}, refused: "x-message-ttl is 3600003"},
	{route: "classic"},
	{route: "full", args: amqp.Table{"x-max-length": int32(1000), "x-overflow": "reject-publish"}},
	{route: "limit-to-letters", args: amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": int32(5), "x-dead-letter-exchange": "iii.dlx", "x-dead-letter-routing-key": "queue:others:limit-to-letters.dlq",
	}},
}

func (q *others) name() string {
	if q.dead {
		return "queue:others:" + q.route + ".dlq"
	}
	return "queue:others:" + q.route
}

// queuesThatLose: a queue that may lose what it has confirmed is refused by its name,
// its argument and its value, and nothing is stored or delivered; the others are used.
// Once it is deleted it is made as it has to be.
func (p *place) queuesThatLose() {
	ch := p.channel()
	for i := range queuesOfOthers {
		q := &queuesOfOthers[i]
		if _, err := ch.QueueDeclare(q.name(), !q.passing, q.autoDelete, q.exclusive, false, q.args); err != nil {
			p.Fatalf("%s: %v", q.name(), err)
		}
	}
	p.put("queue:others:ttl", amqp.Publishing{Body: []byte("theirs")})
	deliveries := p.work("others", "ttl")
	publish := func(q *others) error {
		_, err := p.client.Publish(p.Context(), client.Queue("others", q.route), []byte("ours"))
		return err
	}
	for i := range queuesOfOthers {
		q := &queuesOfOthers[i]
		err := publish(q)
		said := fmt.Sprint(err)
		switch {
		case q.refused == "" && err != nil:
			p.Errorf("%s is not used: %v", q.name(), err)
		case q.refused != "" && (protocol.CodeOf(err) != protocol.CodeConflict || !strings.Contains(said, q.name()) || !strings.Contains(said, q.refused)):
			p.Errorf("%s: %v, want %s", q.name(), err, q.refused)
		}
		if n := p.held(ch, q); n > 0 && q.refused != "" && q.route != "ttl" {
			p.Errorf("%s holds %d messages", q.name(), n)
		}
	}
	for i := range queuesOfOthers {
		if q := &queuesOfOthers[i]; q.refused != "" {
			if _, err := ch.QueueDelete(q.name(), false, false, false); err != nil {
				p.Fatalf("%s: %v", q.name(), err)
			}
		}
	}
	for i := range queuesOfOthers {
		q := &queuesOfOthers[i]
		harness.Await(p, q.name()+" to be made anew", func() bool { return publish(q) == nil })
	}
	d := harness.Receive(p, "a delivery", deliveries)
	if string(d.Data) != "ours" {
		p.Errorf("%q was delivered of what the mesh had refused", d.Data)
	}
	d.End <- nil
}

// held is what a queue of others' holds, by the channel that has made it.
func (p *place) held(ch *amqp.Channel, q *others) int {
	p.Helper()
	state, err := ch.QueueDeclarePassive(q.name(), !q.passing, q.autoDelete, q.exclusive, false, q.args)
	if err != nil {
		p.Fatalf("%s: %v", q.name(), err)
	}
	return state.Messages
}
