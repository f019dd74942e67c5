package router

import (
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/builtin"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
)

// KnownBroker is a broker that routers of this build can use.
type KnownBroker struct {
	Name         string              `json:"name"`
	Capabilities []broker.Capability `json:"capabilities"`
}

// KnownBrokers tells them all, the default first, without asking any.
func KnownBrokers() []KnownBroker {
	return []KnownBroker{
		{builtin.Name, builtin.Capabilities.List()},
		{rabbitmq.Name, rabbitmq.Capabilities.List()},
	}
}
