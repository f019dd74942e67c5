package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	meshExecution = "bench"
	// queuesOfAWorker bounds what one client works on: who has thousands of
	// queues has more than one worker.
	queuesOfAWorker = 2500
)

// meshBroker is the mesh used through its SDK.
type meshBroker struct {
	url          string
	admin        *nats.Conn
	producer     *client.Client
	publisher    *client.Publisher
	workers      []*client.Client
	destinations []client.Destination
	failure      atomic.Pointer[error] // the first
}

func connectMesh(ctx context.Context, url string) (broker, error) {
	b := &meshBroker{url: url}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

func (b *meshBroker) start(ctx context.Context) (err error) {
	if b.admin, err = nats.Connect(b.url); err != nil {
		return err
	}
	if b.producer, err = client.Connect(ctx, b.url, client.Name("bench/producer")); err != nil {
		return err
	}
	b.publisher, err = b.producer.NewPublisher(client.Window(window))
	return err
}

func (b *meshBroker) fail(err error) {
	if err != nil {
		b.failure.CompareAndSwap(nil, &err)
	}
}

func (b *meshBroker) work(ctx context.Context, w work) error {
	if w.observers > 0 {
		return b.observe(ctx, w)
	}
	for queue := range w.queues {
		b.destinations = append(b.destinations, client.Queue(meshExecution, route(queue)))
	}
	for first := 0; first < w.queues; first += queuesOfAWorker {
		c, err := client.Connect(ctx, b.url, client.Name("bench/worker"))
		if err != nil {
			return err
		}
		b.workers = append(b.workers, c)
		if err := workOn(ctx, c, w, first, min(first+queuesOfAWorker, w.queues)); err != nil {
			return err
		}
	}
	return nil
}

func route(queue int) string { return fmt.Sprintf("q%05d", queue) }

var (
	errFailed = errors.New("it shall be tried again")
	errDead   = client.Reject(errors.New("it shall be a dead letter"))
)

// handler is the work's as a client takes it.
func handler(w work) client.Handler {
	return func(_ context.Context, d *client.Delivery) error {
		switch w.handle(d.Data) {
		case failed:
			return errFailed
		case dead:
			return errDead
		default:
			return nil
		}
	}
}

// observe has the messages of a topic handled by observers of one client.
func (b *meshBroker) observe(ctx context.Context, w work) error {
	b.destinations = []client.Destination{client.Topic(meshExecution)}
	c, err := client.Connect(ctx, b.url, client.Name("bench/observer"))
	if err != nil {
		return err
	}
	b.workers = append(b.workers, c)
	for i := range w.observers {
		opts := []client.WorkOption{client.ID(fmt.Sprint("observer-", i)), client.Concurrency(inHand / w.observers)}
		if w.filter != "" {
			opts = append(opts, client.Filter(w.filter))
		}
		if _, err := c.Observe(ctx, meshExecution, handler(w), opts...); err != nil {
			return err
		}
	}
	return nil
}

// workOn registers a client's queues, all at once.
func workOn(ctx context.Context, c *client.Client, w work, first, end int) error {
	handle := handler(w)
	var registering errgroup.Group
	for queue := first; queue < end; queue++ {
		opts := []client.WorkOption{client.Concurrency(max(16, inHand/w.queues))}
		if w.backoff != nil {
			opts = append(opts, client.Backoff(w.backoff(queue)))
		}
		registering.Go(func() error {
			_, err := c.Work(ctx, meshExecution, route(queue), handle, opts...)
			return err
		})
	}
	return registering.Wait()
}

func (b *meshBroker) publish(ctx context.Context, queue int, payload []byte) error {
	m := client.Message{To: b.destinations[queue], Data: payload}
	return b.publisher.PublishFunc(ctx, m, func(_ *client.Receipt, err error) { b.fail(err) })
}

func (b *meshBroker) flush(ctx context.Context) error { return b.publisher.Flush(ctx) }

// left adds up what the services hold. A message on its way from one to
// another is with both.
func (b *meshBroker) left(ctx context.Context) (unsettled, dead int64, err error) {
	stats, err := b.stats(ctx)
	for service, s := range stats {
		if service == "dlq" {
			dead += int64(s.Gauges["dead"])
		}
		for _, gauge := range []string{"ready", "in_flight", "waiting", "moving"} {
			unsettled += int64(s.Gauges[gauge])
		}
	}
	return unsettled, dead, err
}

// holders are the services that hold messages.
var holders = []string{"router", "retry", "dlq"}

// stats asks the services that hold messages, one instance of each.
func (b *meshBroker) stats(ctx context.Context) (map[string]protocol.Stats, error) {
	inbox, err := b.admin.SubscribeSync(b.admin.NewInbox())
	if err != nil {
		return nil, err
	}
	defer inbox.Unsubscribe()
	if err := b.admin.PublishRequest(protocol.SubjectStats, inbox.Subject, []byte("{}")); err != nil {
		return nil, err
	}
	all := make(map[string]protocol.Stats)
	for !hasAll(all) {
		msg, err := inbox.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		var s protocol.Stats
		if err := json.Unmarshal(msg.Data, &s); err != nil {
			return nil, err
		}
		all[s.Service] = s
	}
	return all, nil
}

func hasAll(stats map[string]protocol.Stats) bool {
	for _, service := range holders {
		if _, has := stats[service]; !has {
			return false
		}
	}
	return true
}

func (b *meshBroker) redrive(ctx context.Context) error {
	request, err := json.Marshal(protocol.DeadActRequest{All: true})
	if err != nil {
		return err
	}
	answer, err := b.admin.RequestWithContext(ctx, protocol.SubjectDeadRedrive, request)
	if err != nil {
		return err
	}
	if answer.Header.Get(protocol.HeaderServiceErrorCode) != "" {
		return fmt.Errorf("the redrive was refused: %s", answer.Data)
	}
	return nil
}

// closeIn is how long a client may take to end, with nothing in hand.
const closeIn = 10 * time.Second

func (b *meshBroker) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeIn)
	defer cancel()
	var closing errgroup.Group
	for _, c := range append(b.workers, b.producer) {
		if c != nil {
			closing.Go(func() error { return c.Close(ctx) })
		}
	}
	err := closing.Wait()
	if b.admin != nil {
		b.admin.Close()
	}
	if failure := b.failure.Load(); failure != nil {
		err = errors.Join(err, fmt.Errorf("the mesh reported: %w", *failure))
	}
	return err
}
