//go:build !no_pulsar

package pulsar

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

const (
	dialTimeout = 5 * time.Second
	greetTime   = 3 * time.Second
	// callTimeout is how long the broker may take for what is asked of it.
	callTimeout = 10 * time.Second
	// beatEvery is how often the broker shows that it is there; one that is silent for
	// twice that is gone.
	beatEvery = 15 * time.Second
)

// Broker is one namespace of a Pulsar.
type Broker struct {
	remote.Identity
	o     Options
	log   *slog.Logger
	names scope.Pulsar
	token string

	client    pulsar.Client
	largest   int // message that the broker takes, in bytes
	admin     *admin
	watch     watch
	writers   writers
	sessions  remote.Sessions[*session]
	waiting   waiting
	making    remote.Turns // to make a topic and its subscription
	made      sync.Map     // topics that were there
	shelves   remote.Turns // to look at dead letters: what one has taken another would miss
	receiving remote.Turns // to consume what a queue receives of a topic

	ctx     context.Context //nolint:containedctx // the broker's life
	cancel  context.CancelFunc
	running sync.WaitGroup
}

var (
	_ broker.Remote     = (*Broker)(nil)
	_ broker.Defaulting = (*Broker)(nil)
)

// New checks the options; nothing is connected before Open.
func New(o Options) (broker.Remote, error) {
	o = o.withDefaults()
	at, err := url.Parse(o.URL)
	if err != nil || at.Hostname() == "" || at.Scheme != "pulsar" && at.Scheme != "pulsar+ssl" {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "url is no address of Pulsar, such as %s", DefaultURL)
	}
	over, err := url.Parse(o.AdminURL)
	if err != nil || over.Hostname() == "" || over.Scheme != "http" && over.Scheme != "https" {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "admin_url is no address of Pulsar's admin interface, such as %s", DefaultAdminURL)
	}
	names, err := scope.NewPulsar(o.Tenant, o.Namespace)
	if err != nil {
		return nil, err
	}
	b := &Broker{o: o, log: o.Logger.With("broker", o.Shown), names: names, Identity: remote.Identity{ID: o.Name, Shown: o.Shown, At: at.Scheme + "://" + at.Host}}
	b.token, _ = at.User.Password()
	b.admin = &admin{
		base: over.Scheme + "://" + over.Host + "/admin/v2/", token: b.token, space: o.Tenant + "/" + o.Namespace,
		client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute}, Timeout: callTimeout},
	}
	b.watch.err = errors.New("not connected yet")
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Durability says what held when a publish was answered: the broker had
// confirmed it, which it does once its bookies have it on disk.
func (b *Broker) Durability() string { return protocol.DurabilityFsync }

// Capabilities of Pulsar.
func (b *Broker) Capabilities() broker.Capabilities {
	if b.o.MeshDelay {
		return Capabilities.WithMeshDelay()
	}
	return Capabilities
}

// Defaults hold for subscribers that say nothing.
func (b *Broker) Defaults() broker.Defaults {
	return broker.Defaults{MaxRetries: protocol.DefaultMaxRetries, Concurrency: protocol.DefaultConcurrency, RetryDelay: b.o.RetryDelay}
}

// Open connects, finds out whether the namespace is there, and follows from then
// on whether the broker is.
func (b *Broker) Open(ctx context.Context) error {
	if err := b.dial(ctx); err != nil {
		return b.Faultf(protocol.CodeUnavailable, "cannot be reached: %v; start it, or correct url", err)
	}
	if err := b.examine(ctx); err != nil {
		return err
	}
	o := pulsar.ClientOptions{
		URL: b.At, ConnectionTimeout: dialTimeout, OperationTimeout: callTimeout, KeepAliveInterval: beatEvery,
		MemoryLimitBytes: -1, // the stores bound it
		Logger:           quiet{b.log}, MetricsRegisterer: prometheus.NewRegistry(),
	}
	if b.token != "" {
		o.Authentication = pulsar.NewAuthenticationToken(b.token)
	}
	if err := b.greet(o); err != nil {
		return err
	}
	client, err := pulsar.NewClient(o)
	if err != nil {
		return b.Unreachable(err)
	}
	b.client = client
	b.largest = b.admin.largest(ctx)
	b.watch.say(nil)
	b.running.Go(func() { b.keepWatch(b.ctx) })
	return nil
}

// dial finds out why the broker cannot be reached, if it cannot: its client does not
// say that.
func (b *Broker) dial(ctx context.Context) error {
	at, err := url.Parse(b.At)
	if err != nil {
		return err
	}
	port := cmp.Or(at.Port(), "6650")
	if at.Port() == "" && at.Scheme == "pulsar+ssl" {
		port = "6651"
	}
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), port))
	if err != nil {
		return err
	}
	return c.Close()
}

// greet finds out whether what takes connections answers as a Pulsar does, in less time
// than whoever waits for Open has.
func (b *Broker) greet(o pulsar.ClientOptions) error {
	o.ConnectionTimeout, o.OperationTimeout = greetTime, greetTime
	client, err := pulsar.NewClient(o)
	if err != nil {
		return b.Unreachable(err)
	}
	defer client.Close()
	if _, err := client.TopicPartitions("persistent://" + b.admin.space + "/waybill"); err != nil {
		return b.Faultf(protocol.CodeUnavailable, "takes connections and does not answer as Pulsar does: %s; url is the address of its binary protocol (6650, or 6651 with TLS), and has the token if it asks for one",
			strings.ReplaceAll(err.Error(), "\n", ": "))
	}
	return nil
}

// Close ends all connections. What was not settled goes back to its queue.
func (b *Broker) Close(ctx context.Context) error {
	b.cancel()
	return remote.Within(ctx, func() {
		b.running.Wait()
		if b.client != nil {
			b.client.Close()
		}
		b.admin.client.CloseIdleConnections()
	})
}

// Attach makes the store of a lane.
func (b *Broker) Attach(l *ledger.Ledger, lane broker.Lane) broker.Store {
	host := remote.Host{Name: b.ID, Log: b.log, Context: b.ctx, Running: &b.running, Setups: 4}
	return remote.NewStore(host, l, lane, func(ctx context.Context) remote.Side { return &side{b: b, ctx: ctx} })
}
