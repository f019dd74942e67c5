package conformance

import (
	"testing"

	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
)

func TestRabbitMQ(t *testing.T) {
	amqp := live.SharedRabbitMQ(t).VirtualHost(t)
	m := startMeshOn(t, amqp, router.Limits{})
	brokertest.Run(t, brokertest.Target{
		URL: m.server.URL(), Broker: rabbitmq.Name, Capabilities: rabbitmq.Capabilities, Restart: m.restart,
	})
}
