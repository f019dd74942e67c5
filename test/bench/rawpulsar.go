package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

// pulsarPlace is where a measurement's queues are, in the words of the adapter's
// configuration.
type pulsarPlace struct {
	URL       string `json:"url"`
	AdminURL  string `json:"admin_url"`
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"`
}

// placeOnPulsar makes a namespace.
func placeOnPulsar(p *live.Pulsar) (at string, remove func() error, err error) {
	name, err := p.MakeNamespace()
	if err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(pulsarPlace{p.URL(), p.AdminURL(), live.Tenant, name})
	return string(text), func() error { return nil }, err
}

// pulsarBroker is Pulsar used as its client does by default, but for batches, of which
// a message cannot be told from the others: a producer and a shared subscription for
// each queue.
type pulsarBroker struct {
	server    *live.Pulsar
	at        pulsarPlace
	client    pulsar.Client
	producers []pulsar.Producer
	consumers []pulsar.Consumer
	room      *semaphore.Weighted
	inHand    atomic.Int64          // taken and not acknowledged
	failure   atomic.Pointer[error] // the first
	stop      context.CancelFunc
	ending    sync.WaitGroup
}

func connectPulsar(p *live.Pulsar) func(ctx context.Context, url string) (broker, error) {
	return func(_ context.Context, at string) (broker, error) {
		b := &pulsarBroker{server: p, room: semaphore.NewWeighted(window)}
		if err := json.Unmarshal([]byte(at), &b.at); err != nil {
			return nil, err
		}
		var err error
		b.client, err = pulsar.NewClient(pulsar.ClientOptions{
			URL: b.at.URL, Logger: log.NewLoggerWithSlog(slog.New(slog.DiscardHandler)), MetricsRegisterer: prometheus.NewRegistry(),
		})
		return b, err
	}
}

func (b *pulsarBroker) fail(err error) {
	if err != nil {
		b.failure.CompareAndSwap(nil, &err)
	}
}

func (b *pulsarBroker) work(ctx context.Context, w work) error {
	if w.observers > 0 || w.backoff != nil {
		return errors.New("topics and failures are not measured on raw Pulsar")
	}
	ctx, b.stop = context.WithCancel(ctx)
	for queue := range w.queues {
		if err := b.use(ctx, w, "persistent://"+b.at.Tenant+"/"+b.at.Namespace+"/"+route(queue)); err != nil {
			return err
		}
	}
	return nil
}

func (b *pulsarBroker) use(ctx context.Context, w work, topic string) error {
	consumer, err := b.client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "raw", Type: pulsar.Shared, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	if err != nil {
		return err
	}
	b.consumers = append(b.consumers, consumer)
	producer, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, MaxPendingMessages: window})
	if err != nil {
		return err
	}
	b.producers = append(b.producers, producer)
	b.ending.Go(func() {
		for {
			m, err := consumer.Receive(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				b.fail(err)
				return
			}
			b.inHand.Add(1)
			w.handle(m.Payload())
			b.fail(consumer.Ack(m))
			b.inHand.Add(-1)
		}
	})
	return nil
}

func (b *pulsarBroker) publish(ctx context.Context, queue int, payload []byte) error {
	if err := b.room.Acquire(ctx, 1); err != nil {
		return err
	}
	b.producers[queue].SendAsync(ctx, &pulsar.ProducerMessage{Payload: payload}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		b.fail(err)
		b.room.Release(1)
	})
	return nil
}

func (b *pulsarBroker) flush(ctx context.Context) error {
	if err := b.room.Acquire(ctx, window); err != nil {
		return err
	}
	b.room.Release(window)
	if failure := b.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

func (b *pulsarBroker) left(context.Context) (unsettled, dead int64, err error) {
	held, err := b.server.Held(b.at.Namespace)
	return held + b.inHand.Load(), 0, err
}

func (b *pulsarBroker) redrive(context.Context) error {
	return errors.New("a redrive is not measured on raw Pulsar")
}

func (b *pulsarBroker) close(context.Context) error {
	if b.stop != nil {
		b.stop()
	}
	b.ending.Wait()
	for _, consumer := range b.consumers {
		consumer.Close()
	}
	for _, producer := range b.producers {
		producer.Close()
	}
	b.client.Close()
	if failure := b.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}
