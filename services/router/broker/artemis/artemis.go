//go:build !no_artemis

package artemis

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

// Broker is one Artemis.
type Broker struct {
	remote.Identity
	o       Options
	log     *slog.Logger
	address string // host and port
	user    *url.Userinfo
	secure  bool

	desk     *desk        // for management
	shelves  remote.Turns // to look at dead letters: what one has taken another would miss
	leaving  leaving
	binding  remote.Turns // to bind to a topic
	counting counting
	sessions remote.Sessions[*session]
	warned   sync.Map     // of which settings
	lost     atomic.Int64 // when a lost connection was told of, ns since the epoch

	node string // its own name for itself

	// What the acceptor takes off the beginning of a destination.
	queuePrefix, topicPrefix string

	ctx     context.Context //nolint:containedctx // the broker's life
	cancel  context.CancelFunc
	running sync.WaitGroup
}

var (
	_ broker.Remote    = (*Broker)(nil)
	_ broker.Comparing = (*Broker)(nil)
)

// New checks the options; nothing is connected before Open.
func New(o Options) (broker.Remote, error) {
	o = o.withDefaults()
	at, err := url.Parse(o.URL)
	if err != nil || at.Hostname() == "" || at.Scheme != "stomp" && at.Scheme != "stomps" {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "url is no STOMP address, such as %s", DefaultURL)
	}
	port := at.Port()
	if port == "" {
		port = "61613"
	}
	b := &Broker{o: o, log: o.Logger.With("broker", o.Shown), address: net.JoinHostPort(at.Hostname(), port), user: at.User, secure: at.Scheme == "stomps"}
	b.Identity = remote.Identity{ID: o.Name, Shown: o.Shown, At: at.Scheme + "://" + b.address}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.desk = newDesk(b)
	return b, nil
}

// Durability says what held when a publish was answered: the broker had
// confirmed it, which it does once it is on disk.
func (b *Broker) Durability() string { return protocol.DurabilityFsync }

// Capabilities of Artemis.
func (b *Broker) Capabilities() broker.Capabilities {
	if b.o.MeshDelay {
		return Capabilities.WithMeshDelay()
	}
	return Capabilities
}

// Open connects, finds out what it is connected to, and follows the connection
// from then on.
func (b *Broker) Open(ctx context.Context) error {
	conn, err := b.dial(ctx, b.desk.link.role)
	if r, is := errors.AsType[refused](err); is {
		return b.Refuses(r)
	}
	if err != nil {
		return b.Unreachable(err)
	}
	if err := b.examine(ctx, conn); err != nil {
		conn.end(errClosed, "")
		conn.running.Wait()
		return err
	}
	b.desk.link.use(conn)
	b.desk.link.start(b.ctx)
	return nil
}

// examine finds out about the broker, and refuses one on which the mesh could not
// keep its word.
func (b *Broker) examine(ctx context.Context, conn *connection) error {
	if err := b.checkVersion(conn.server); err != nil {
		return err
	}
	err := b.desk.open(ctx, conn)
	if err == nil {
		err = b.findNode(ctx, conn)
	}
	if err == nil {
		err = b.findPrefixes(ctx, conn)
	}
	if err == nil {
		err = b.checkSettings(ctx, conn)
	}
	if _, coded := errors.AsType[*protocol.Error](err); err != nil && !coded {
		return b.Faultf(protocol.CodeUnavailable, "cannot be managed over STOMP: give its user the permission manage, and those to create and delete queues and addresses (%v)", err)
	}
	return err
}

// Close ends all connections. What was not settled goes back to its queue.
func (b *Broker) Close(ctx context.Context) error {
	b.cancel()
	return remote.Within(ctx, b.running.Wait)
}

// Away says why the broker cannot be used now.
func (b *Broker) Away() error {
	_, err := b.desk.link.live()
	return err
}

// Attach makes the store of a lane.
func (b *Broker) Attach(l *ledger.Ledger, lane broker.Lane) broker.Store {
	host := remote.Host{Name: b.ID, Log: b.log, Context: b.ctx, Running: &b.running, Setups: 4}
	return remote.NewStore(host, l, lane, func(ctx context.Context) remote.Side { return newSide(b, ctx) })
}

// lossLevel is how loudly it is told that a connection is lost: of those that are
// lost together one is told of.
func (b *Broker) lossLevel() func(string, ...any) {
	now := time.Now().UnixNano()
	if before := b.lost.Swap(now); now-before < int64(time.Second) {
		return b.log.Debug
	}
	return b.log.Warn
}
