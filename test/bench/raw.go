package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What raw JetStream's work queue is made of: one stream, a subject for each
// queue, and one consumer for them all, which is fastest; or one for each, which
// keeps a slow queue out of the others' way, as the mesh does.
const (
	rawStream    = "JOBS"
	rawQueues    = "job."
	rawDead      = "dead."
	rawWorkers   = "workers"
	rawOperators = "operators"
	rawTopics    = "TOPICS"
	rawTopic     = "topic."
	rawObserver  = "observer"
)

// rawBroker is JetStream used as its documentation says: asynchronous publish,
// a pull consumer, explicit acknowledgements, delayed naks.
type rawBroker struct {
	prefix           string // of subjects that are published to
	each             bool   // a consumer for each queue
	producer, worker *nats.Conn
	publisher, js    jetstream.JetStream
	stream           jetstream.Stream
	jobs, letters    jetstream.Consumer
	working          []jetstream.ConsumeContext
	failure          atomic.Pointer[error] // the first

	moving chan move
	ending sync.WaitGroup // the mover
}

// stall is how long a publish may wait for its place in the window.
const stall = time.Minute

func connectRaw(ctx context.Context, url string) (broker, error) {
	return connectRawBroker(ctx, url, false)
}

func connectRawEach(ctx context.Context, url string) (broker, error) {
	return connectRawBroker(ctx, url, true)
}

func connectRawBroker(ctx context.Context, url string, each bool) (broker, error) {
	b := &rawBroker{prefix: rawQueues, each: each, moving: make(chan move, window)}
	b.ending.Go(b.mover)
	if err := b.start(ctx, url); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

func (b *rawBroker) start(ctx context.Context, url string) (err error) {
	if b.producer, err = nats.Connect(url); err != nil {
		return err
	}
	if b.worker, err = nats.Connect(url); err != nil {
		return err
	}
	b.publisher, err = jetstream.New(b.producer, jetstream.WithPublishAsyncMaxPending(window),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { b.fail(err) }))
	if err != nil {
		return err
	}
	if b.js, err = jetstream.New(b.worker); err != nil {
		return err
	}
	b.stream, err = b.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: rawStream, Subjects: []string{rawQueues + "*", rawDead + "*"}, Retention: jetstream.WorkQueuePolicy,
		MaxConsumers: -1,
	})
	if err != nil || b.each {
		return err
	}
	if b.jobs, err = b.stream.CreateConsumer(ctx, b.consumer(rawWorkers, rawQueues+"*", inHand)); err != nil {
		return err
	}
	b.letters, err = b.stream.CreateConsumer(ctx, b.consumer(rawOperators, rawDead+"*", inHand))
	return err
}

func (b *rawBroker) consumer(name, subjects string, pending int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: name, FilterSubject: subjects, AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending: pending, AckWait: time.Hour,
	}
}

func (b *rawBroker) fail(err error) {
	if err != nil {
		b.failure.CompareAndSwap(nil, &err)
	}
}

// work handles messages in the consumer's own goroutine, which is fastest for
// handlers that do nothing.
func (b *rawBroker) work(ctx context.Context, w work) error {
	if w.observers > 0 {
		return b.observe(ctx, w)
	}
	if b.each {
		return b.workOnEach(ctx, w)
	}
	if w.backoff != nil {
		// What waits for its next attempt is pending to JetStream.
		config := b.consumer(rawWorkers, rawQueues+"*", -1)
		if _, err := b.js.UpdateConsumer(ctx, rawStream, config); err != nil {
			return err
		}
	}
	return b.consume(b.jobs, pull, func(msg jetstream.Msg) { b.fail(b.handle(w, msg)) })
}

func (b *rawBroker) workOnEach(ctx context.Context, w work) error {
	atOnce := max(16, inHand/w.queues)
	for queue := range w.queues {
		number := strconv.Itoa(queue)
		c, err := b.stream.CreateConsumer(ctx, b.consumer(rawWorkers+number, rawQueues+number, atOnce))
		if err != nil {
			return err
		}
		if err := b.consume(c, atOnce, func(msg jetstream.Msg) { b.fail(b.handle(w, msg)) }); err != nil {
			return err
		}
	}
	return nil
}

// observe is a stream that keeps a message until each of its consumers has
// acknowledged it, and a consumer for each observer.
func (b *rawBroker) observe(ctx context.Context, w work) (err error) {
	b.prefix = rawTopic
	b.stream, err = b.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: rawTopics, Subjects: []string{rawTopic + "*"}, Retention: jetstream.InterestPolicy,
	})
	if err != nil {
		return err
	}
	b.jobs, b.letters = nil, nil
	for i := range w.observers {
		c, err := b.stream.CreateConsumer(ctx, b.consumer(rawObserver+strconv.Itoa(i), rawTopic+"*", inHand/w.observers))
		if err != nil {
			return err
		}
		if err := b.consume(c, pull, func(msg jetstream.Msg) { b.fail(b.handle(w, msg)) }); err != nil {
			return err
		}
	}
	return nil
}

// pull is how many messages a consumer of all queues asks for at once.
const pull = 1000

func (b *rawBroker) consume(c jetstream.Consumer, pull int, handle func(msg jetstream.Msg)) error {
	consuming, err := c.Consume(handle, jetstream.PullMaxMessages(pull),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { b.fail(err) }))
	if err != nil {
		return err
	}
	b.working = append(b.working, consuming)
	return nil
}

func (b *rawBroker) handle(w work, msg jetstream.Msg) error {
	switch w.handle(msg.Data()) {
	case failed:
		queue, err := strconv.Atoi(strings.TrimPrefix(msg.Subject(), rawQueues))
		if err != nil {
			return err
		}
		return msg.NakWithDelay(w.backoff(queue))
	case dead:
		return b.move(msg, rawQueues, rawDead)
	default:
		return msg.Ack()
	}
}

// move publishes a message under another prefix; mover acknowledges it once
// that is answered.
func (b *rawBroker) move(msg jetstream.Msg, from, to string) error {
	subject := to + strings.TrimPrefix(msg.Subject(), from)
	answer, err := b.publisher.PublishAsync(subject, msg.Data(), jetstream.WithStallWait(stall))
	if err != nil {
		return err
	}
	b.moving <- move{msg, answer}
	return nil
}

type move struct {
	msg    jetstream.Msg
	answer jetstream.PubAckFuture
}

// mover ends moves in their order, which is that of their answers.
func (b *rawBroker) mover() {
	for m := range b.moving {
		select {
		case <-m.answer.Ok():
			b.fail(m.msg.Ack())
		case err := <-m.answer.Err():
			b.fail(err)
		}
	}
}

func (b *rawBroker) publish(_ context.Context, queue int, payload []byte) error {
	_, err := b.publisher.PublishAsync(b.prefix+strconv.Itoa(queue), payload, jetstream.WithStallWait(stall))
	return err
}

func (b *rawBroker) flush(ctx context.Context) error {
	select {
	case <-b.publisher.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	if failure := b.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

func (b *rawBroker) left(ctx context.Context) (unsettled, dead int64, err error) {
	if b.jobs == nil { // what is acknowledged is gone from the stream, and there are no letters
		info, err := b.stream.Info(ctx)
		if err != nil {
			return 0, 0, err
		}
		return int64(info.State.Msgs), 0, nil
	}
	counts := make([]int64, 0, 2)
	for _, c := range []jetstream.Consumer{b.jobs, b.letters} {
		info, err := c.Info(ctx)
		if err != nil {
			return 0, 0, err
		}
		counts = append(counts, int64(info.NumPending)+int64(info.NumAckPending))
	}
	return counts[0], counts[1], nil
}

func (b *rawBroker) redrive(context.Context) error {
	return b.consume(b.letters, pull, func(msg jetstream.Msg) { b.fail(b.move(msg, rawDead, rawQueues)) })
}

func (b *rawBroker) close(context.Context) error {
	for _, w := range b.working {
		w.Stop()
		<-w.Closed()
	}
	close(b.moving)
	b.ending.Wait()
	for _, nc := range []*nats.Conn{b.producer, b.worker} {
		if nc != nil {
			nc.Close()
		}
	}
	if failure := b.failure.Load(); failure != nil {
		return fmt.Errorf("JetStream reported: %w", *failure)
	}
	return nil
}
