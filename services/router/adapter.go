package router

import (
	"log/slog"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/artemis"
	"github.com/waybill-mq/waybill/services/router/broker/pulsar"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
	"github.com/waybill-mq/waybill/services/router/broker/redis"
)

// adapter is a kind of broker outside of the mesh. What its configuration may say
// is in the table of adapters of internal/config, which has a row for it too.
type adapter struct {
	kind         string
	capabilities broker.Capabilities
	// make makes a broker of a configuration that was checked. It calls itself by its id
	// in its notes, and by its name in what it says. Nothing is connected before Open.
	make func(b protocol.PlacedBroker, log *slog.Logger) (broker.Remote, error)
}

// adapters are those that routers of this build can use, one row for each.
var adapters = []adapter{
	{rabbitmq.Name, rabbitmq.Capabilities, makeRabbitMQ},
	{artemis.Name, artemis.Capabilities, makeArtemis},
	{pulsar.Name, pulsar.Capabilities, makePulsar},
	{redis.Name, redis.Capabilities, makeRedis},
}

func makeRabbitMQ(b protocol.PlacedBroker, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.RabbitMQOf(b.Adapter)
	return rabbitmq.New(rabbitmq.Options{
		Name: b.ID, Shown: b.Name, URL: c.AMQPURL, Prefix: c.Prefix, MaxAttempts: c.MaxAttempts, PrefetchCount: c.PrefetchCount, PriorityField: c.PriorityField, MeshDelay: config.IsMeshDelay(b.Adapter), Logger: log,
	})
}

func makeArtemis(b protocol.PlacedBroker, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.ArtemisOf(b.Adapter)
	return artemis.New(artemis.Options{Name: b.ID, Shown: b.Name, URL: c.URL, MeshDelay: config.IsMeshDelay(b.Adapter), Logger: log})
}

func makeRedis(b protocol.PlacedBroker, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.RedisOf(b.Adapter)
	return redis.New(redis.Options{Name: b.ID, Shown: b.Name, URL: c.URL, Logger: log})
}

func makePulsar(b protocol.PlacedBroker, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.PulsarOf(b.Adapter)
	return pulsar.New(pulsar.Options{
		Name: b.ID, Shown: b.Name, URL: c.URL, AdminURL: c.AdminURL, Tenant: c.Tenant, Namespace: c.Namespace,
		RetryDelay: time.Duration(c.DelayMs) * time.Millisecond, MeshDelay: config.IsMeshDelay(b.Adapter), Logger: log,
	})
}

// makeBroker makes the broker of an adapter. UNSUPPORTED: this build has none of
// its kind.
func makeBroker(b protocol.PlacedBroker, log *slog.Logger) (broker.Remote, error) {
	for _, k := range adapters {
		if k.kind == b.Adapter.Name {
			return k.make(b, log)
		}
	}
	return nil, protocol.Errorf(protocol.CodeUnsupported, "this router has no adapter %.64q (waybill broker capabilities lists those it has): start routers of a version that has it", b.Adapter.Name)
}
