package brokers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestAway: what brokers hold is in all numbers, and of what is on a broker that is away nobody is told that it is not there, or
// to publish it again. Once the broker is back it is all there.
func TestAway(t *testing.T) { //nolint:tparallel // its parts count what the mesh has
	t.Parallel()
	rabbit, artemis := live.SharedRabbitMQ(t), sharedArtemis(t)
	links := map[string]*harness.Link{"rabbit": harness.NewLink(t, rabbit.Address()), "stomp": harness.NewLink(t, artemis.Address())}
	at := strings.Replace(rabbit.VirtualHost(t), rabbit.Address(), links["rabbit"].Address(), 1)
	config := fmt.Sprintf(`adapter: {name: builtin}
brokers:
  rabbit: {name: rabbitmq, config: {amqp_url: %q}}
  stomp: {name: artemis, config: {url: %q}}
routes:
  - {pattern: /queue/on-rabbit/**, broker: rabbit}
  - {pattern: /queue/on-stomp/**, broker: stomp}
`, at, strings.Replace(artemis.URL(), artemis.Address(), links["stomp"].Address(), 1))
	m := harness.Start(t, "--config", harness.Configuration(t, config))
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			left := m.For(t).Leave(name, "on-"+name, true)
			left.CheckCounted()
			link.Cut()
			left.CheckUnknown()
			link.Mend()
			left.CheckThere()
		})
	}
}
