package conformance

import (
	"testing"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/services/router/broker/redis"
)

// TestRedis: the registry refuses what the configured broker cannot do, so the mesh is
// told of it by its configuration.
func TestRedis(t *testing.T) {
	t.Parallel()
	r := live.SharedRedis(t)
	m := startMeshWith(t, config.Document{"adapter": map[string]any{"name": redis.Name, "config": map[string]any{"redis_url": r.URL()}}})
	brokertest.RunPassing(t, brokertest.Target{
		URL: m.server.URL(), Broker: redis.Name, Capabilities: redis.Capabilities, Restart: m.restart,
		Sever: func(t *testing.T) { r.CloseConnections(t) },
	})
}
