package pulsar_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestKilledServices: the router and the retry service are killed by turns while
// messages are published, settled and fail. What has failed waits on the broker in one
// queue, in the mesh in the other: none is lost, and none comes early.
func TestKilledServices(t *testing.T) {
	t.Parallel()
	server := live.SharedPulsar(t)
	m := harness.StartSeparate(t, nil)
	space := server.Namespace(t)
	m.Apply(fmt.Sprintf(`adapter: %s
brokers:
  held: %s
routes:
  - {pattern: /queue/held/**, broker: held}
`, configured(server.URL(), server, space, 500, "native"), configured(server.URL(), server, server.Namespace(t), 500, "mesh")))
	p := &place{T: t, mesh: m.Mesh, server: server, space: space, client: m.Connect()}
	loads := []*load{p.load("here"), p.load("held")}
	kills := 3
	if harness.Soak(t) > 0 {
		kills = 20
	}
	for range kills {
		for _, name := range []string{"router-1", "retry-1"} {
			for _, l := range loads {
				l.progress(50 + rand.Int64N(50))
			}
			service := m.Instance(name)
			service.Kill()
			service.Start()
		}
	}
	m.AwaitReady()
	for _, l := range loads {
		l.progress(100)
		l.finish()
	}
}
