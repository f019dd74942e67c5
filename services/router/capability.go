package router

import (
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/builtin"
)

// KnownBroker is a broker that routers of this build can use.
type KnownBroker struct {
	Name         string              `json:"name"`
	Capabilities []broker.Capability `json:"capabilities"`
}

// KnownBrokers tells them all, the default first, without asking any.
func KnownBrokers() []KnownBroker {
	known := make([]KnownBroker, 1, 1+len(adapters))
	known[0] = KnownBroker{builtin.Name, builtin.Capabilities.List()}
	for _, k := range adapters {
		known = append(known, KnownBroker{k.kind, k.capabilities.List()})
	}
	return known
}
