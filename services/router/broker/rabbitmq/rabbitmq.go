//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Broker is one RabbitMQ, or a cluster of it.
type Broker struct {
	remote.Identity
	o     Options
	log   *slog.Logger
	names scope.AMQP
	vhost string

	out       *link   // publishes, topology, looks at queues
	inside    []*link // looks into queues, each into one at a time
	mu        sync.Mutex
	in        []*link // consumers
	desks     chan *desk
	looks     chan *desk
	shelves   remote.Turns // to look at dead letters: what one has taken another would miss
	declaring remote.Turns // to declare a queue
	conflicts conflicts
	away      *remote.Away

	cluster   string // what it calls itself
	ranks     bool   // quorum queues of this version have messages of high priority pass others
	unbounded bool   // quorum queues of this version have a delivery limit to be lifted

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

var (
	_ broker.Remote = (*Broker)(nil)
	_ broker.Naming = (*Broker)(nil)

	_ broker.Comparing = (*Broker)(nil)
)

// New checks the options; nothing is connected before Open.
func New(o Options) (broker.Remote, error) {
	o = o.withDefaults()
	uri, err := amqp.ParseURI(o.URL)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "amqp_url is no AMQP address, such as %s: %v", DefaultURL, withoutURL(err))
	}
	names, err := scope.NewAMQP(o.Prefix)
	if err != nil {
		return nil, err
	}
	at := uri.Scheme + "://" + uri.Host + ":" + strconv.Itoa(uri.Port) + "/" + strings.TrimPrefix(uri.Vhost, "/")
	b := &Broker{
		Identity: remote.Identity{ID: o.Name, Shown: o.Shown, At: at},
		o:        o, log: o.Logger.With("broker", o.Shown), names: names, away: remote.NewAway(longestWay), vhost: uri.Vhost,
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.out = newLink(b, "publish")
	for range looks {
		b.inside = append(b.inside, newLink(b, "look"))
	}
	b.desks, b.looks = newDesks(desks, b.out), newDesks(looks, b.inside...)
	return b, nil
}

// withoutURL is a parser's error without the address, which may have a password.
func withoutURL(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// Durability says what held when a publish was answered: the broker had
// confirmed it, which it does once it is on disk.
func (b *Broker) Durability() string { return protocol.DurabilityFsync }

// CheckName implements broker.Naming.
func (b *Broker) CheckName(queue string) error {
	_, err := b.namesOf(queue)
	return err
}

// Capabilities of RabbitMQ.
func (b *Broker) Capabilities() broker.Capabilities {
	if b.o.MeshDelay {
		return Capabilities.WithMeshDelay()
	}
	return Capabilities
}

// Defaults are those of the options.
func (b *Broker) Defaults() broker.Defaults {
	return broker.Defaults{MaxRetries: b.o.MaxAttempts, Concurrency: b.o.PrefetchCount, PriorityField: b.o.PriorityField}
}

// Open connects, and follows the connection from then on.
func (b *Broker) Open(ctx context.Context) error {
	conn, err := b.dial(ctx, b.out.role)
	if e, is := errors.AsType[*amqp.Error](err); is && (e.Code == amqp.AccessRefused || e.Code == amqp.NotAllowed) {
		return b.Refuses(e)
	}
	if err != nil {
		return b.Unreachable(err)
	}
	version, _ := conn.Properties["version"].(string)
	major, minor := remote.Version(version)
	if major < 3 || major == 3 && minor < 10 {
		return errors.Join(conn.Close(), b.Faultf(protocol.CodeUnsupported, "is RabbitMQ %s: 3.10 or later is needed", version))
	}
	b.unbounded, b.ranks = major >= 4, major >= 4
	b.cluster, _ = conn.Properties["cluster_name"].(string)
	b.out.use(conn)
	b.running.Go(func() { b.out.keep(b.ctx) })
	for _, l := range b.inside {
		b.running.Go(func() { l.keep(b.ctx) })
	}
	return nil
}

// Close ends all connections. What was not settled goes back to its queue.
func (b *Broker) Close(ctx context.Context) error {
	b.cancel()
	return remote.Within(ctx, b.running.Wait)
}

// Away says why the broker cannot be used now.
func (b *Broker) Away() error { return b.out.away() }

// Unheard implements broker.Hearing: one that has no room answers.
func (b *Broker) Unheard() error { return b.out.unheard() }

// Attach makes the store of a lane.
func (b *Broker) Attach(l *ledger.Ledger, lane broker.Lane) broker.Store {
	host := remote.Host{Name: b.ID, Log: b.log, Context: b.ctx, Running: &b.running, Setups: desks, Away: b.away}
	return remote.NewStore(host, l, lane, func(ctx context.Context) remote.Side { return newSide(b, ctx) })
}

// longestWay is how long a message whose delay has passed is on its way to its
// queue: RabbitMQ tries it again after three minutes if it could not take it at
// once, as while it starts. The message is in neither queue's count meanwhile.
const longestWay = 200 * time.Second

// channelsOfLink is fewer than the channels a connection has by default.
const channelsOfLink = 1000

// inbound is a connection with room for one more consumer.
func (b *Broker) inbound() *link {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.in {
		if l.channels.Load() < channelsOfLink {
			l.channels.Add(1)
			return l
		}
	}
	l := newLink(b, "consume")
	l.channels.Add(1)
	b.in = append(b.in, l)
	b.running.Go(func() { l.keep(b.ctx) })
	return l
}
