package cli

import (
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

type brokerCmd struct {
	Capabilities brokerCapabilitiesCmd `cmd:"" help:"What each broker can do with a message, without a mesh. What one cannot is refused, with UNSUPPORTED."`
}

type brokerCapabilitiesCmd struct {
	Broker string `arg:"" optional:"" help:"One broker; default all."`
}

func (c *brokerCapabilitiesCmd) Run(a *app) error {
	brokers, err := c.chosen()
	if err != nil {
		return err
	}
	return a.show(brokers, func() {
		g := newGrid("BROKER", "CAPABILITY", "VALUE", "MEANS")
		for _, b := range brokers {
			for _, capability := range b.Capabilities {
				g.row(b.Name, capability.Name, capability.Value, capability.Text)
			}
		}
		g.write(a.stdout)
	})
}

func (c *brokerCapabilitiesCmd) chosen() ([]router.KnownBroker, error) {
	known := router.KnownBrokers()
	if c.Broker == "" {
		return known, nil
	}
	names := make([]string, 0, len(known))
	for _, b := range known {
		if b.Name == c.Broker {
			return []router.KnownBroker{b}, nil
		}
		names = append(names, b.Name)
	}
	return nil, protocol.Errorf(protocol.CodeNotFound, "this build has no broker %.64q: it has %s", c.Broker, strings.Join(names, ", "))
}
