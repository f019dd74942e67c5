package conformance

import (
	"log/slog"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, targetOnRabbitMQ(t, rabbitmq.Options{}))
}

// TestRabbitMQDelayMesh: what failed waits in the mesh.
func TestRabbitMQDelayMesh(t *testing.T) {
	t.Parallel()
	runWaiting(t, targetOnRabbitMQ(t, rabbitmq.Options{MeshDelay: true}))
}

// targetOnRabbitMQ is a mesh whose queues are in a virtual host of their own.
func targetOnRabbitMQ(t *testing.T, o rabbitmq.Options) brokertest.Target {
	t.Helper()
	r := live.SharedRabbitMQ(t)
	o.URL = r.VirtualHost(t)
	m := startMeshOn(t, func(log *slog.Logger) (broker.Remote, error) {
		o.Logger = log
		return rabbitmq.New(o)
	}, router.Limits{})
	return brokertest.Target{
		URL: m.server.URL(), Broker: rabbitmq.Name, Capabilities: m.capabilities(t), Restart: m.restart, Undecided: m.undecided,
		Sever: func(t *testing.T) { r.CloseConnections(t, o.URL) },
		Put: func(t *testing.T, queue string, headers map[string]any, body []byte) {
			put(t, o.URL, queue, headers, body)
		},
	}
}

// put publishes as a program does that knows RabbitMQ alone.
func put(t *testing.T, address, queue string, headers map[string]any, body []byte) {
	t.Helper()
	names, err := scope.NewAMQP("")
	if err != nil {
		t.Fatal(err)
	}
	name, err := scope.Ledger{}.Parse(queue)
	if err != nil {
		t.Fatal(err)
	}
	place, err := names.Format(name)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	harness.Await(t, place+" to take a message", func() bool { // its consumer may be about to make it
		confirm, err := ch.PublishWithDeferredConfirm("", place, true, false, amqp.Publishing{Headers: table(headers), Body: body})
		if err != nil {
			t.Fatal(err)
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

// table is headers as the client takes them.
func table(headers map[string]any) amqp.Table {
	made := amqp.Table{}
	for name, value := range headers {
		made[name] = inTable(value)
	}
	return made
}

func inTable(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return table(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = inTable(v[i])
		}
		return list
	default:
		return v
	}
}
