// Package conformance runs the conformance suite of brokers against the mesh.
package conformance

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/dlq"
	"github.com/waybill-mq/waybill/services/registry"
	"github.com/waybill-mq/waybill/services/retry"
	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/test/harness"
)

// The client of Pulsar leaves a goroutine for a consumer that is closed just as it has
// its connection again, and one for a consumer that the broker does not let subscribe in
// time.
func TestMain(m *testing.M) {
	harness.Main(m,
		goleak.IgnoreAnyFunction("github.com/apache/pulsar-client-go/pulsar.(*partitionConsumer).grabConn.func1"),
		goleak.IgnoreAnyFunction("github.com/apache/pulsar-client-go/pulsar.(*dlqRouter).run"),
	)
}

const guard = 5 * time.Minute // against hanging

// service is what all services are.
type service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// inProcess is a mesh in this process, NATS included.
type inProcess struct {
	data   string
	port   int // -1 before the first start
	limits router.Limits
	log    *slog.Logger
	// tombstone is how long closed executions stay closed; 0: a day.
	tombstone time.Duration
	// on makes the broker that queues are on; nil: they are builtin.
	on func(log *slog.Logger) (broker.Remote, error)
	// configured says instead what the mesh's configuration is at its first start.
	configured config.Document

	server   *natsserver.Server
	services []service
}

func startMesh(t *testing.T, limits router.Limits) *inProcess {
	t.Helper()
	return startMeshOn(t, nil, limits)
}

func startMeshOn(t *testing.T, on func(log *slog.Logger) (broker.Remote, error), limits router.Limits) *inProcess {
	t.Helper()
	return (&inProcess{on: on, limits: limits}).begin(t)
}

// startMeshWith starts one that is told by its configuration where its messages are.
func startMeshWith(t *testing.T, configured config.Document) *inProcess {
	t.Helper()
	return (&inProcess{configured: configured}).begin(t)
}

func (m *inProcess) begin(t *testing.T) *inProcess {
	t.Helper()
	m.data, m.port, m.log = t.TempDir(), -1, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	m.start(t)
	t.Cleanup(func() { m.stop(t) })
	return m
}

func (m *inProcess) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	m.startNATS(ctx, t)
	at, err := url.Parse(m.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if m.port, err = strconv.Atoi(at.Port()); err != nil {
		t.Fatal(err)
	}
	m.services = nil
	for _, start := range []func(mesh.ConnectOptions) (service, error){
		func(o mesh.ConnectOptions) (service, error) {
			return registry.New(registry.Options{Mesh: o, Instance: "registry-a", Logger: m.log, Tombstone: m.tombstone, Config: registry.ConfigOptions{Seed: m.configured}})
		},
		m.newRetry,
		func(o mesh.ConnectOptions) (service, error) {
			return dlq.New(dlq.Options{Mesh: o, Instance: "dlq-a", Logger: m.log})
		},
		func(o mesh.ConnectOptions) (service, error) {
			brokers, err := m.brokers()
			if err != nil {
				return nil, err
			}
			options := router.Options{Mesh: o, Instance: "router-a", Logger: m.log, Limits: m.limits, Drain: time.Second, Brokers: brokers, Configured: m.configured != nil}
			if len(brokers) > 0 {
				options.Adapter = brokers[0].Name()
			}
			return router.New(options)
		},
	} {
		s, err := start(mesh.ConnectOptions{URL: m.server.URL()})
		if err == nil {
			err = s.Start(ctx)
		}
		if err != nil {
			t.Fatalf("starting a service: %v", err)
		}
		m.services = append(m.services, s)
	}
	m.awaitReady(ctx, t)
}

func (m *inProcess) newRetry(o mesh.ConnectOptions) (service, error) {
	return retry.New(retry.Options{Mesh: o, Instance: "retry-a", Logger: m.log})
}

const retryAt = 1 // of services

// undecided stops the retry service until decide is called.
func (m *inProcess) undecided(t *testing.T) (decide func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	if err := m.services[retryAt].Stop(ctx); err != nil {
		t.Fatalf("stopping the retry service: %v", err)
	}
	return func() {
		t.Helper()
		again, err := m.newRetry(mesh.ConnectOptions{URL: m.server.URL()})
		if err == nil {
			m.services[retryAt] = again
			err = again.Start(ctx)
		}
		if err != nil {
			t.Fatalf("starting the retry service: %v", err)
		}
	}
}

func (m *inProcess) startNATS(ctx context.Context, t *testing.T) {
	t.Helper()
	var err error
	if m.server, err = natsserver.Start(ctx, natsserver.Options{DataDir: m.data, Port: m.port, Logger: m.log}); err != nil {
		t.Fatalf("starting NATS: %v", err)
	}
}

// sever ends NATS under the running services and starts it again.
func (m *inProcess) sever(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	if err := m.server.Stop(ctx); err != nil {
		t.Fatalf("stopping NATS: %v", err)
	}
	m.startNATS(ctx, t)
}

// awaitReady returns when each service says it is ready: they need each other,
// so none is so at its own start.
func (m *inProcess) awaitReady(ctx context.Context, t *testing.T) {
	t.Helper()
	nc, err := mesh.Connect(ctx, mesh.ConnectOptions{URL: m.server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for ready := 0; ready < len(m.services); {
		answers, err := mesh.Gather[protocol.Ready](ctx, nc, protocol.SubjectReady, protocol.Empty{}, 20*time.Millisecond)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("the mesh does not get ready: %v, %+v", err, answers)
		}
		ready = 0
		for _, a := range answers {
			if a.Ready {
				ready++
			}
		}
	}
}

func (m *inProcess) stop(t *testing.T) {
	t.Helper()
	m.stopServices(t)
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	if err := m.server.Stop(ctx); err != nil {
		t.Errorf("stopping NATS: %v", err)
	}
}

// stopServices leaves NATS running.
func (m *inProcess) stopServices(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(m.services) {
		errs = append(errs, s.Stop(ctx))
	}
	m.services = nil
	if err := errors.Join(errs...); err != nil {
		t.Errorf("stopping the mesh: %v", err)
	}
}

func (m *inProcess) restart(t *testing.T) {
	t.Helper()
	m.stop(t)
	m.start(t)
}

// brokers are those that the routers are given.
func (m *inProcess) brokers() ([]broker.Remote, error) {
	if m.on == nil {
		return nil, nil
	}
	b, err := m.on(m.log)
	return []broker.Remote{b}, err
}

// capabilities are those of the broker that its queues are on.
func (m *inProcess) capabilities(t *testing.T) broker.Capabilities {
	t.Helper()
	b, err := m.on(m.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	return b.Capabilities()
}

// runWaiting runs the suite on a broker whose messages wait in the mesh: of it what has
// any wait, and in a soak all.
func runWaiting(t *testing.T, target brokertest.Target) {
	t.Helper()
	if harness.Soak(t) > 0 {
		brokertest.Run(t, target)
		return
	}
	brokertest.RunWaiting(t, target)
}
