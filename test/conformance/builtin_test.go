package conformance

import (
	"testing"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/builtin"
)

func TestBuiltin(t *testing.T) {
	t.Parallel()
	m := startMesh(t, router.Limits{})
	b := builtin.New(protocol.DurabilityFsync, nil)
	brokertest.Run(t, brokertest.Target{
		URL: m.server.URL(), Broker: b.Name(), Capabilities: b.Capabilities(), Restart: m.restart, Undecided: m.undecided, Sever: m.sever,
	})
}
