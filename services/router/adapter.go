package router

import (
	"log/slog"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/artemis"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
	"github.com/waybill-mq/waybill/services/router/broker/redis"
)

// adapter is a kind of broker outside of the mesh. What its configuration may say
// is in the table of adapters of internal/config, which has a row for it too.
type adapter struct {
	kind         string
	capabilities broker.Capabilities
	// make makes a broker of a configuration that was checked. It calls itself by id,
	// in its notes and in what it says. Nothing is connected before Open.
	make func(id string, a protocol.Adapter, log *slog.Logger) (broker.Remote, error)
}

// adapters are those that routers of this build can use, one row for each.
var adapters = []adapter{
	{rabbitmq.Name, rabbitmq.Capabilities, makeRabbitMQ},
	{artemis.Name, artemis.Capabilities, makeArtemis},
	{redis.Name, redis.Capabilities, makeRedis},
}

func makeRabbitMQ(id string, a protocol.Adapter, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.RabbitMQOf(a)
	return rabbitmq.New(rabbitmq.Options{
		Name: id, URL: c.AMQPURL, Prefix: c.Prefix, MaxAttempts: c.MaxAttempts, PrefetchCount: c.PrefetchCount, PriorityField: c.PriorityField, MeshDelay: config.IsMeshDelay(a), Logger: log,
	})
}

func makeArtemis(id string, a protocol.Adapter, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.ArtemisOf(a)
	return artemis.New(artemis.Options{Name: id, URL: c.URL, MeshDelay: config.IsMeshDelay(a), Logger: log})
}

func makeRedis(id string, a protocol.Adapter, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.RedisOf(a)
	return redis.New(redis.Options{Name: id, URL: c.URL, Logger: log})
}

// makeBroker makes the broker of an adapter. UNSUPPORTED: this build has none of
// its kind.
func makeBroker(id string, a protocol.Adapter, log *slog.Logger) (broker.Remote, error) {
	for _, k := range adapters {
		if k.kind == a.Name {
			return k.make(id, a, log)
		}
	}
	return nil, protocol.Errorf(protocol.CodeUnsupported, "this router has no adapter %.64q (waybill broker capabilities lists those it has): start routers of a version that has it", a.Name)
}
