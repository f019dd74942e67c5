package rabbitmq_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// place is a mesh and the virtual host that has its queues.
type place struct {
	*testing.T
	mesh   *harness.Mesh
	server *live.RabbitMQ
	amqp   string
	client *client.Client
}

// TestOnTheBroker shares one mesh between its parts.
func TestOnTheBroker(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	at := server.VirtualHost(t)
	mesh := harness.Start(t, harness.OnRabbitMQ(t, at)...)
	for name, test := range map[string]func(*place){
		"HoldingQueueOutlivesItsMessages": (*place).holdingQueue, "Names": (*place).names,
		"MissingDeadLetters": (*place).missingDeadLetters, "PolicyOfTheOperator": (*place).policy, "QueueDeleted": (*place).deleted, "QueuesThatLose": (*place).queuesThatLose,
		"HoldingQueueGone": (*place).holdingQueueGone, "HoldingQueueOfOthers": (*place).holdingQueueOfOthers, "Delays": (*place).delays, "DelaysOfPriorities": (*place).delaysOfPriorities, "LongestDelay": (*place).longestDelay,
		"LettersWrittenTwice": (*place).lettersTwice, "LettersInOrder": (*place).lettersInOrder, "LettersOnPages": (*place).lettersOnPages,
		"Orphans": (*place).orphans, "Lives": (*place).lives, "Numbers": (*place).numbers, "JobsOfStrangers": (*place).jobsOfStrangers, "LargeLetter": (*place).largeLetter, "Books": (*place).books, "Windows": (*place).windows,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mesh.For(t)
			test(&place{T: t, mesh: m, server: server, amqp: at, client: m.Connect()})
		})
	}
}

// channel is one of a connection of the test's own.
func (p *place) channel() *amqp.Channel {
	p.Helper()
	conn, err := amqp.Dial(p.amqp)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		p.Fatal(err)
	}
	return ch
}

// put publishes as a program does that knows RabbitMQ alone, once the queue takes
// it.
func (p *place) put(queue string, message amqp.Publishing) {
	p.Helper()
	ch := p.channel()
	if err := ch.Confirm(false); err != nil {
		p.Fatal(err)
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	harness.Await(p, queue+" to take a message", func() bool {
		confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, message)
		if err != nil {
			p.Fatal(err)
		}
		confirmed := confirm.Wait()
		select {
		case <-returns:
			return false
		default:
			return confirmed
		}
	})
}

// depth is how many messages wait in a queue; -1: there is none.
func (p *place) depth(queue string) int {
	p.Helper()
	ch := p.channel()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if e, is := errors.AsType[*amqp.Error](err); is && e.Code == amqp.NotFound {
		return -1
	}
	if err != nil {
		p.Fatal(err)
	}
	return q.Messages
}

func (p *place) awaitDepth(queue string, n int) {
	p.Helper()
	ch := p.channel()
	harness.Await(p, queue+" has so many messages", func() bool {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			ch = p.channel()
			return false
		}
		return q.Messages == n
	})
}

// vhost is the part of the management interface's paths that names it.
func (p *place) vhost() string {
	at, err := url.Parse(p.amqp)
	if err != nil {
		p.Fatal(err)
	}
	return strings.TrimPrefix(at.Path, "/")
}

// queueInfo is what the broker says of a queue.
type queueInfo struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	Arguments map[string]any `json:"arguments"`
}

func (p *place) queues() (all []queueInfo) {
	p.Helper()
	p.server.Admin(p, http.MethodGet, "/api/queues/"+p.vhost(), nil, &all)
	return all
}

func (p *place) publish(execution, route, data string, opts ...client.PublishOption) string {
	p.Helper()
	return harness.Publish(p, p.client, client.Queue(execution, route), data, opts...).MessageID
}

// work has a route's deliveries ended by the test.
func (p *place) work(execution, route string, opts ...client.WorkOption) <-chan harness.Taken {
	p.Helper()
	all, _ := harness.Take(p, p.client, execution, route, opts...)
	return all
}

var errFails = errors.New("it fails")
