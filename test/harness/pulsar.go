package harness

import (
	"fmt"
	"testing"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

// OnPulsar are arguments of `waybill up` that have queues in a namespace of a Pulsar,
// where what fails waits so many milliseconds.
func OnPulsar(t testing.TB, p *live.Pulsar, namespace string, delayMs int) []string {
	t.Helper()
	return []string{"--config", Configuration(t, fmt.Sprintf(
		"adapter:\n  name: pulsar\n  config:\n    url: %s\n    admin_url: %s\n    tenant: %s\n    namespace: %s\n    negative_ack_redelivery_delay_ms: %d\n",
		p.URL(), p.AdminURL(), live.Tenant, namespace, delayMs))}
}
