package router

import (
	"context"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
)

const configureAgain = 250 * time.Millisecond

// configure finds out from the registry on which broker queues are. It waits for
// it: a message must not be stored where nobody looks for it.
func (s *Service) configure(ctx context.Context) error {
	if !s.o.Configured {
		return nil
	}
	t := time.NewTicker(configureAgain)
	defer t.Stop()
	for {
		stored, err := mesh.Request[protocol.StoredConfig](ctx, s.bulk, protocol.SubjectConfig, protocol.ConfigRequest{})
		if err == nil {
			return s.adapt(stored.Config.Adapter)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return protocol.Errorf(protocol.CodeUnavailable, "the registry does not tell the mesh's configuration (%v): start it", err)
		}
	}
}

// adapt makes the broker that the configuration names.
func (s *Service) adapt(a protocol.Adapter) error {
	c, chosen := config.RabbitMQOf(a)
	if !chosen {
		return nil
	}
	b, err := rabbitmq.New(rabbitmq.Options{URL: c.AMQPURL, Prefix: c.Prefix, Logger: s.log})
	if err != nil {
		return err
	}
	s.remotes = append(s.remotes, &remoteBroker{Remote: b, words: wordsFor(b)})
	s.adapter = s.remotes[len(s.remotes)-1]
	return nil
}
