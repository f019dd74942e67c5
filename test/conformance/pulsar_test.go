package conformance

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	adapter "github.com/waybill-mq/waybill/services/router/broker/pulsar"
)

// TestPulsar: the registry refuses what the configured broker cannot do, so the mesh is
// told of it by its configuration.
func TestPulsar(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, targetOnPulsar(t, config.DelayNative, adapter.Capabilities))
}

// TestPulsarDelayMesh: what failed waits in the mesh, each for its own delay.
func TestPulsarDelayMesh(t *testing.T) {
	t.Parallel()
	runWaiting(t, targetOnPulsar(t, config.DelayMesh, adapter.Capabilities.WithMeshDelay()))
}

func targetOnPulsar(t *testing.T, delay string, can broker.Capabilities) brokertest.Target {
	t.Helper()
	p := live.SharedPulsar(t)
	space := p.Namespace(t)
	m := startMeshWith(t, config.Document{"adapter": map[string]any{"name": adapter.Name, "config": map[string]any{
		"url": p.URL(), "admin_url": p.AdminURL(), "tenant": live.Tenant, "namespace": space, "negative_ack_redelivery_delay_ms": int64(1), "delay": delay,
	}}})
	return brokertest.Target{
		URL: m.server.URL(), Broker: adapter.Name, Capabilities: can, Restart: m.restart, Undecided: m.undecided,
		Sever: func(t *testing.T) { p.Unload(t, space) },
		Put: func(t *testing.T, queue string, headers map[string]any, body []byte) {
			putPulsar(t, p.URL(), space, queue, headers, body)
		},
	}
}

// putPulsar publishes as a program does that knows Pulsar alone.
func putPulsar(t *testing.T, address, space, queue string, headers map[string]any, body []byte) {
	t.Helper()
	names, err := scope.NewPulsar(live.Tenant, space)
	if err != nil {
		t.Fatal(err)
	}
	name, err := scope.Ledger{}.Parse(queue)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := names.Format(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: address, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)), MetricsRegisterer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m := &pulsar.ProducerMessage{Payload: body, Properties: map[string]string{}}
	for name, value := range headers {
		m.Properties[name] = strings.ToValidUTF8(fmt.Sprint(value), "?")
	}
	if _, err := p.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}
