// Package up runs a whole mesh, NATS included, in one process.
package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/dlq"
	"github.com/waybill-mq/waybill/services/gateway"
	"github.com/waybill-mq/waybill/services/registry"
	"github.com/waybill-mq/waybill/services/retry"
	"github.com/waybill-mq/waybill/services/router"
)

// Mesh is a running mesh.
type Mesh struct {
	o       Options
	nats    *natsserver.Server
	gateway *gateway.Service
	// inMemory: messages are in memory alone
	inMemory bool
	alone    bool // there is only what has the configuration
	stop     mesh.Lifecycle

	watching sync.WaitGroup
	stopping chan struct{}
	stopOnce sync.Once
	stopErr  error
	failed   chan struct{} // closed after failure is set
	failOnce sync.Once
	failure  error
}

// service is what all services are.
type service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
}

// Start starts NATS and every service, and returns when all are ready. Its
// errors are coded, except those of a damaged store; what was started is
// stopped again.
func Start(ctx context.Context, o Options) (*Mesh, error) {
	m := newMesh(o)
	if err := m.start(ctx); err != nil {
		return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	return m, nil
}

// StartConfiguration starts of a mesh that is stopped what has its configuration,
// NATS and the registry, so that it can be looked at and changed. NOT_FOUND if there
// is none in Options.Data.
func StartConfiguration(ctx context.Context, o Options) (*Mesh, error) {
	m := newMesh(o)
	m.alone = true
	err := m.mustBeThere()
	if err == nil {
		err = m.startNATS(ctx)
	}
	if err == nil {
		err = m.startService(ctx, "registry", m.registry)
	}
	if err != nil {
		return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	return m, nil
}

func newMesh(o Options) *Mesh {
	return &Mesh{o: o.withDefaults(), stopping: make(chan struct{}), failed: make(chan struct{})}
}

func (m *Mesh) start(ctx context.Context) error {
	if err := m.startNATS(ctx); err != nil {
		return err
	}
	for _, next := range []struct {
		name string
		make func() (service, error)
	}{
		{"registry", m.registry}, {"retry", m.retry}, {"dlq", m.dlq}, {"router", m.router}, {"gateway", m.http},
	} {
		if err := m.startService(ctx, next.name, next.make); err != nil {
			return err
		}
		if next.name == "registry" {
			if err := m.configure(ctx); err != nil {
				return err
			}
		}
	}
	return m.awaitReady(ctx)
}

func (m *Mesh) startService(ctx context.Context, name string, build func() (service, error)) error {
	s, err := build()
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	m.stop.Add(name, s.Stop)
	m.watching.Go(func() { m.watch(name, s) })
	return nil
}

// configure reads what the services are started with.
func (m *Mesh) configure(ctx context.Context) error {
	return m.ask(ctx, func(nc *nats.Conn) error {
		stored, err := mesh.Request[protocol.StoredConfig](ctx, nc, protocol.SubjectConfig, protocol.ConfigRequest{})
		m.inMemory = config.BuiltinOf(stored.Config.Adapter).InMemory()
		return err
	})
}

// ask has f ask the services, over a connection that ends with it.
func (m *Mesh) ask(ctx context.Context, f func(nc *nats.Conn) error) error {
	o := m.inside()
	o.Name = "waybill-up"
	nc, err := mesh.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer nc.Close()
	return f(nc)
}

const (
	services  = 5 // that say that they are ready
	readyLook = 20 * time.Millisecond
)

// awaitReady returns when each service is ready: they need each other, so none
// is so at its own start.
func (m *Mesh) awaitReady(ctx context.Context) error {
	return m.ask(ctx, func(nc *nats.Conn) error {
		for {
			answers, err := mesh.Gather[protocol.Ready](ctx, nc, protocol.SubjectReady, protocol.Empty{}, readyLook)
			if err != nil {
				return err
			}
			waiting := waitingFor(answers)
			if waiting == "" {
				return nil
			}
			if ctx.Err() != nil || !mesh.Pause(ctx, readyLook) {
				return protocol.Errorf(protocol.CodeTimeout, "the mesh is not ready: %s", waiting)
			}
		}
	})
}

// waitingFor says what is not ready, "" when all is.
func waitingFor(answers []protocol.Ready) string {
	ready := 0
	waiting := "services do not answer yet"
	for _, a := range answers {
		if a.Ready {
			ready++
		} else {
			waiting = a.Service + ": " + strings.Join(a.Waiting, ", ")
		}
	}
	if ready >= services {
		return ""
	}
	return waiting
}

func (m *Mesh) startNATS(ctx context.Context) error {
	host, port, err := SplitAddress("listen", m.o.Listen)
	if err != nil {
		return err
	}
	if port == 0 {
		port = -1 // any free one
	}
	store, err := m.storeDir()
	if err != nil {
		return err
	}
	m.nats, err = natsserver.Start(ctx, natsserver.Options{
		DataDir: m.o.Data, StoreDir: store, Host: host, Port: port,
		SyncInterval: time.Duration(m.o.Sync), AcceptLoss: m.o.AcceptLoss, WholeDisk: true, Logger: m.o.Logger,
	})
	if err != nil {
		return err
	}
	m.stop.Add("NATS", m.nats.Stop)
	m.watching.Go(m.watchStore)
	return nil
}

// inside reaches NATS without a socket, which answers sooner; bulk goes over
// TCP, which pipelines better; a service with use for each gets both.
func (m *Mesh) inside() mesh.ConnectOptions {
	return mesh.ConnectOptions{InProcess: m.nats.InProcess()}
}
func (m *Mesh) bulk() mesh.ConnectOptions { return mesh.ConnectOptions{URL: m.nats.URL()} }
func (m *Mesh) both() mesh.ConnectOptions {
	return mesh.ConnectOptions{URL: m.nats.URL(), InProcess: m.nats.InProcess()}
}

// Instances are named after the server, which has one name for good: a mesh
// that starts again on its data has its leases back at once.

func (m *Mesh) registry() (service, error) {
	return registry.New(registry.Options{
		Mesh: m.inside(), Instance: m.nats.Name(), Version: m.o.Version, Logger: m.o.Logger,
		Config: registry.ConfigOptions{Seed: m.o.Seed, Change: m.o.Change, By: "waybill up"}, Alone: m.alone,
	})
}

func (m *Mesh) retry() (service, error) {
	return retry.New(retry.Options{Mesh: m.bulk(), Instance: m.nats.Name(), Version: m.o.Version, Logger: m.o.Logger, AcceptLoss: m.o.AcceptLoss, Slack: m.slack(), InMemory: m.inMemory})
}

func (m *Mesh) dlq() (service, error) {
	return dlq.New(dlq.Options{Mesh: m.bulk(), Instance: m.nats.Name(), Version: m.o.Version, Logger: m.o.Logger, AcceptLoss: m.o.AcceptLoss, Slack: m.slack(), InMemory: m.inMemory})
}

func (m *Mesh) router() (service, error) {
	return router.New(router.Options{
		Mesh: m.both(), Instance: m.nats.Name(), Version: m.o.Version, Logger: m.o.Logger, AcceptLoss: m.o.AcceptLoss,
		Durability: m.o.Sync.durability(), Limits: m.o.Limits, MaxPayload: m.o.MaxPayload,
		Configured: true, Space: m.nats.Space, Slack: m.slack(), InMemory: m.inMemory,
		// What is left of the time is for committing and for the others.
		Drain: m.o.Drain * 3 / 4,
	})
}

func (m *Mesh) http() (service, error) {
	s, err := gateway.New(gateway.Options{Mesh: m.inside(), Instance: m.nats.Name(), Version: m.o.Version, Logger: m.o.Logger, Listen: m.o.HTTP, WebhookSecrets: m.o.WebhookSecrets, Drain: m.o.Drain / 4})
	m.gateway = s
	return s, err
}

// watch notes the first service that ends by itself.
func (m *Mesh) watch(name string, s service) {
	select {
	case <-m.stopping:
	case <-s.Done():
		m.fail(fmt.Errorf("%s has ended: %w", name, errors.Join(s.Err(), errUnasked)))
	}
}

func (m *Mesh) fail(err error) {
	m.failOnce.Do(func() {
		m.failure = err
		close(m.failed)
	})
}

var errUnasked = errors.New("it was not asked to")

// Failed is closed when a service has ended by itself; Err then says why.
func (m *Mesh) Failed() <-chan struct{} { return m.failed }

// Err is why a service ended; nil before Failed.
func (m *Mesh) Err() error {
	select {
	case <-m.failed:
		return m.failure
	default:
		return nil
	}
}

// Stop drains and stops everything, within Options.Drain and ctx: no more
// publishes are taken, what is in workers' hands may finish, the rest stays
// stored. Stopping again waits for the first and returns the same.
func (m *Mesh) Stop(ctx context.Context) error {
	m.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, m.o.Drain)
		defer cancel()
		close(m.stopping)
		m.watching.Wait()
		m.stopErr = m.stop.Stop(ctx)
	})
	return m.stopErr
}

// NATS is the URL clients connect to, with the port that was taken.
func (m *Mesh) NATS() string { return m.nats.URL() }

// HTTP is the gateway's URL, with the port that was taken.
func (m *Mesh) HTTP() string { return "http://" + m.gateway.Address() }

// Data is the directory that holds everything.
func (m *Mesh) Data() string { return m.o.Data }

// Durability says for people what holds when a publish is answered.
func (m *Mesh) Durability() string {
	if m.inMemory {
		return "publishes are in memory alone: what is not handled when this process ends is lost"
	}
	return m.o.Sync.String()
}

// Listen is the address NATS listens on, as Options.Listen takes it.
func (m *Mesh) Listen() string {
	u, err := url.Parse(m.NATS())
	if err != nil {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(0))
	}
	return u.Host
}
