package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/artemis"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
)

const (
	configureAgain = 250 * time.Millisecond
	// earlierLooks is how often in a row a registry must be there that does not
	// know the configuration, to be one of an earlier version: one that starts may
	// be so for a moment.
	earlierLooks = 4
)

// configure finds out from the registry on which broker queues are. It waits for
// it: a message must not be stored where nobody looks for it.
func (s *Service) configure(ctx context.Context) error {
	if !s.o.Configured {
		return nil
	}
	t := time.NewTicker(configureAgain)
	defer t.Stop()
	for earlier := 0; ; {
		stored, err := mesh.Request[protocol.StoredConfig](ctx, s.bulk, protocol.SubjectConfig, protocol.ConfigRequest{})
		if err == nil {
			return cmp.Or(s.runIn(ctx, &stored.Config), s.adapt(stored.Config.Adapter))
		}
		earlier++
		if protocol.CodeOf(err) != protocol.CodeUnavailable || !s.hasRegistry(ctx) {
			earlier = 0
		}
		if earlier == earlierLooks {
			return nil // with it there is no adapter but the built-in one
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return protocol.Errorf(protocol.CodeUnavailable, "the registry does not tell the mesh's configuration (%v): start it", err)
		}
	}
}

// hasRegistry says whether any registry answers.
func (s *Service) hasRegistry(ctx context.Context) bool {
	_, err := mesh.Request[protocol.WorkersPage](ctx, s.bulk, protocol.SubjectWorkers, protocol.WorkersRequest{Limit: 1})
	return err == nil
}

// adapt makes the broker that the configuration names.
func (s *Service) adapt(a protocol.Adapter) error {
	b, err := s.brokerOf(a)
	if err != nil || b == nil {
		return err
	}
	s.remotes = append(s.remotes, &remoteBroker{Remote: b, words: wordsFor(b)})
	s.adapter = s.remotes[len(s.remotes)-1]
	return nil
}

// brokerOf is the broker of an adapter; nil for the built-in one.
func (s *Service) brokerOf(a protocol.Adapter) (broker.Remote, error) {
	if !config.IsOutside(a) {
		return nil, nil //nolint:nilnil // no broker is no error
	}
	return makeBroker(a.Name, a, s.log)
}

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
}

func makeRabbitMQ(id string, a protocol.Adapter, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.RabbitMQOf(a)
	return rabbitmq.New(rabbitmq.Options{
		Name: id, URL: c.AMQPURL, Prefix: c.Prefix, MaxAttempts: c.MaxAttempts, PrefetchCount: c.PrefetchCount, PriorityField: c.PriorityField, Logger: log,
	})
}

func makeArtemis(id string, a protocol.Adapter, log *slog.Logger) (broker.Remote, error) {
	c, _ := config.ArtemisOf(a)
	return artemis.New(artemis.Options{Name: id, URL: c.URL, Logger: log})
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

// tryTime bounds tryAdapter.
const tryTime = 4 * time.Second

// tryAdapter says whether this router could use an adapter: it connects to its
// broker, and leaves it again.
func (s *Service) tryAdapter(ctx context.Context, a protocol.Adapter) (protocol.Empty, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	b, err := s.brokerOf(a)
	if err != nil || b == nil {
		return protocol.Empty{}, err
	}
	return protocol.Empty{}, errors.Join(b.Open(ctx), b.Close(ctx))
}
