//go:build !no_redis

package redis

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

const (
	answerTime = 3 * time.Second // for Redis to answer
	watchEvery = time.Second     // whether it is there
)

// Broker is one Redis.
type Broker struct {
	remote.Identity
	o      Options
	log    *slog.Logger
	client *client.Client
	writer *writer
	hub    *hub
	drops  drops
	lost   atomic.Pointer[string] // why it cannot be used now; nil: it can

	ctx     context.Context //nolint:containedctx // the broker's life
	cancel  context.CancelFunc
	running sync.WaitGroup
}

var _ broker.Remote = (*Broker)(nil)

// New checks the options; nothing is connected before Open.
func New(o Options) (broker.Remote, error) {
	o = o.withDefaults()
	at, err := client.ParseURL(o.URL)
	switch _, hidden := errors.AsType[*url.Error](err); { // that one has the address with its password in it
	case err != nil && !hidden:
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "redis_url of the broker %s is no Redis address, such as %s: %v", o.Name, DefaultURL, err)
	case hidden, at.Network != "tcp":
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "redis_url of the broker %s is no Redis address, such as %s", o.Name, DefaultURL)
	}
	quieten()
	at.MaxRetries = -1 // what was published and not answered would be published twice
	at.DialTimeout, at.ReadTimeout, at.WriteTimeout, at.ContextTimeoutEnabled = answerTime, answerTime, answerTime, true
	at.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	b := &Broker{o: o, log: o.Logger.With("broker", o.Shown), Identity: remote.Identity{ID: o.Name, Shown: o.Shown, At: scheme(at) + "://" + at.Addr}, client: client.NewClient(at)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.writer, b.hub, b.drops.log = newWriter(b), newHub(b), b.log
	return b, nil
}

// quiet keeps the client library from writing to standard error: what matters of it
// comes back as an error, and is logged here.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var quieten = sync.OnceFunc(func() { client.SetLogger(quiet{}) })

func scheme(at *client.Options) string {
	if at.TLSConfig != nil {
		return "rediss"
	}
	return "redis"
}

// Durability says what held when a publish was answered: Redis keeps nothing.
func (b *Broker) Durability() string { return protocol.DurabilityNone }

// Capabilities of Redis.
func (b *Broker) Capabilities() broker.Capabilities { return Capabilities }

// Defaults are for subscribers that say nothing: a message is tried once.
func (b *Broker) Defaults() broker.Defaults {
	return broker.Defaults{MaxRetries: 1, Concurrency: protocol.DefaultConcurrency}
}

// Open connects, and follows the connection from then on.
func (b *Broker) Open(ctx context.Context) error {
	if err := b.client.Ping(ctx).Err(); err != nil {
		return b.Unreachable(err)
	}
	b.running.Go(b.watch)
	b.running.Go(b.writer.run)
	b.running.Go(b.hub.run)
	return nil
}

// watch notices when Redis is not there, also while nothing is published.
func (b *Broker) watch() {
	for remote.Sleep(b.ctx, watchEvery) {
		b.noted(b.client.Ping(b.ctx).Err())
		b.drops.rest(dropsEvery)
	}
}

// noted takes note of how Redis answers.
func (b *Broker) noted(err error) {
	if err == nil {
		if b.lost.Swap(nil) != nil {
			b.log.Info("the broker is back", "address", b.At)
		}
		return
	}
	if b.ctx.Err() != nil {
		return
	}
	why := err.Error()
	if b.lost.Swap(&why) == nil {
		b.log.Warn("the broker cannot be reached and is tried again; what is published there meanwhile does not arrive", "address", b.At, "error", err)
	}
}

// Close ends all connections. What was not handled is lost.
func (b *Broker) Close(ctx context.Context) error {
	b.cancel()
	err := errors.Join(remote.Within(ctx, b.running.Wait), b.client.Close())
	b.drops.rest(0)
	return err
}

// Away says why the broker cannot be used now.
func (b *Broker) Away() error {
	if why := b.lost.Load(); why != nil {
		return b.Faultf(protocol.CodeUnavailable, "cannot be reached: %s", *why)
	}
	return nil
}

// Attach makes the store of a lane.
func (b *Broker) Attach(l *ledger.Ledger, lane broker.Lane) broker.Store { return newStore(b, l, lane) }

// Depth is nothing: Redis holds no message.
func (b *Broker) Depth(context.Context, string, []int64) (broker.Depth, error) {
	return broker.Depth{}, b.Away()
}

// errNoLetters is what every operation on dead letters ends with.
var errNoLetters = protocol.Errorf(protocol.CodeUnsupported, "RedisAdapter does not support DLQ operations (pub/sub only)")

// NoLetters implements broker.WithoutLetters.
func (b *Broker) NoLetters() error { return errNoLetters }

// Browse refuses.
func (b *Broker) Browse(context.Context, string, int, protocol.MessageID) ([]broker.Letter, error) {
	return nil, errNoLetters
}

// Act refuses.
func (b *Broker) Act(context.Context, string, broker.Action) (int64, error) { return 0, errNoLetters }
