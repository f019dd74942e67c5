package pulsar_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

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
	m.Apply(fmt.Sprintf(`adapter: %s
brokers:
  held: %s
routes:
  - {pattern: /queue/held/**, broker: held}
`, configured(server.URL(), server, server.Namespace(t), waits, "native"), configured(server.URL(), server, server.Namespace(t), waits, "mesh")))
	var loads []*harness.Load
	for _, execution := range []string{"here", "held"} {
		loads = append(loads, harness.BeginLoad(t, m.Mesh, execution, waits*time.Millisecond))
	}
	for range harness.Rounds(t, 3, 20) {
		for _, name := range []string{"router-1", "retry-1"} {
			for _, l := range loads {
				l.Progress(50 + rand.Int64N(50))
			}
			service := m.Instance(name)
			service.Kill()
			service.Start()
		}
	}
	m.AwaitReady()
	for _, l := range loads {
		l.Progress(100)
		l.Finish()
	}
}
