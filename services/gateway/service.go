// Package gateway is the mesh's door for HTTP: publishing, what operators do,
// whether it is up and ready, and its metrics. It owns nothing; it asks the
// other services.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel"

	"github.com/waybill-mq/waybill/internal/bind"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/services/gateway/diagnose"
)

const serviceName = "gateway"

// DefaultListen is where the gateway listens if nothing else is said.
const DefaultListen = "127.0.0.1:8000"

// Options of New.
type Options struct {
	Mesh mesh.ConnectOptions
	// Instance tells this instance from the others: one subject token. Default
	// a random one.
	Instance string
	Version  string
	Logger   *slog.Logger // default none
	// Listen is <host>:<port> for HTTP; port 0 is any free one; default
	// DefaultListen. A host that is not loopback is refused.
	Listen string
	// Reconcile is how often the books are compared for /metrics; default
	// DefaultReconcile, below 0 never.
	Reconcile time.Duration
	// Drain is how long Stop lets calls of webhooks finish before they are cut
	// off and their messages handed back; default client.DefaultDrainWindow.
	Drain time.Duration
	// WebhookSecrets is the directory with the files that webhooks name for their
	// secrets; default none.
	WebhookSecrets string
	// Replicas of the bucket of webhooks, made at the first start on this NATS;
	// default 1.
	Replicas int
}

// Service is one instance of the gateway.
type Service struct {
	o   Options
	log *slog.Logger

	tracer  *tracing.Tracer // nil: no spans are made
	nc      *nats.Conn
	client  *client.Client // publishes, and works for webhooks
	mesh    *mesh.Service
	address string

	books    books
	webhooks *webhooks

	diagnoses chan struct{}                   // holds a token of each diagnosis under way
	diagnosed atomic.Pointer[diagnose.Report] // the last that found out what there is to try
	changed   chan struct{}                   // that may not be what there is now

	stop mesh.Lifecycle
	done chan struct{}
	once sync.Once
	err  error
}

// New makes a service, which does nothing until Start. It is INVALID_NAME for
// an Instance that is no subject token, INVALID_ARGS for a Listen that is no
// address, FORBIDDEN for one that others can reach.
func New(o Options) (*Service, error) {
	o.Instance = cmp.Or(o.Instance, nuid.Next())
	o.Listen = cmp.Or(o.Listen, DefaultListen)
	o.Reconcile = cmp.Or(o.Reconcile, DefaultReconcile)
	o.Drain = cmp.Or(o.Drain, client.DefaultDrainWindow)
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.Mesh.Name = cmp.Or(o.Mesh.Name, "waybill-"+serviceName)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log := o.Logger.With("service", serviceName)
	o.Mesh.Logger = cmp.Or(o.Mesh.Logger, log)
	if err := scope.CheckToken(o.Instance); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "HTTP cannot listen on %q: give <host>:<port>, such as %s", o.Listen, DefaultListen)
	}
	if err := bind.Check("HTTP", host); err != nil {
		return nil, err
	}
	return &Service{o: o, tracer: tracing.New(otel.GetTracerProvider(), library, o.Version), log: log, done: make(chan struct{}), diagnoses: make(chan struct{}, maxDiagnoses), changed: make(chan struct{}, 1), books: books{one: make(chan struct{}, 1)}}, nil
}

// Start connects and listens. It fails with UNAVAILABLE if NATS cannot be
// reached before ctx ends or the address is taken; nothing is left behind then.
// It does not wait for the other services: /readyz tells of them. It is called
// once.
func (s *Service) Start(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (s *Service) start(ctx context.Context) (err error) {
	if s.nc, err = mesh.Connect(ctx, s.o.Mesh); err != nil {
		return err
	}
	s.stop.Add("connection", func(context.Context) error { s.nc.Close(); return nil })
	if err := s.join(ctx); err != nil {
		return err
	}
	s.mesh, err = mesh.NewService(s.nc, mesh.ServiceOptions{
		Name: serviceName, Instance: s.o.Instance, Version: s.o.Version, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.stop.Add("endpoints", s.mesh.Stop)
	err = errors.Join(
		mesh.EveryInstance(s.mesh, "stats", protocol.SubjectStats, s.stats),
		mesh.EveryInstance(s.mesh, "ready", protocol.SubjectReady, s.ready),
	)
	if err != nil {
		return err
	}
	if err := s.followWebhooks(ctx); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	if _, err := s.mesh.Raw("workers", protocol.SubjectWorkerChanged, "", s.workersChanged); err != nil {
		return err
	}
	began := time.Now()
	known := s.learn(ctx)
	took := time.Since(began)
	s.background(func(ctx context.Context) { s.learnAgain(ctx, known, took) })
	if s.o.Reconcile > 0 {
		s.background(s.reconcileAgain)
	}
	return s.mesh.Flush(ctx)
}

// background runs work until Stop, which waits for it.
func (s *Service) background(work func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work(ctx)
	}()
	s.stop.Add("background", func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// join connects for publishing.
func (s *Service) join(ctx context.Context) (err error) {
	if s.client, err = s.connectClient(ctx); err == nil {
		s.stop.Add("client", s.client.Close)
	}
	return err
}

// connectClient connects as any program of the mesh's users does.
func (s *Service) connectClient(ctx context.Context) (*client.Client, error) {
	o := s.o.Mesh
	opts := o.Options
	if o.InProcess != nil {
		opts = append(slices.Clip(opts), nats.InProcessServer(o.InProcess))
	}
	return client.Connect(ctx, cmp.Or(o.URL, nats.DefaultURL), client.Name(o.Name), client.Logger(s.log), client.DrainWindow(s.o.Drain), client.NATS(slices.Clone(opts)...))
}

// listen takes the address and serves it in a goroutine that Stop waits for.
func (s *Service) listen(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.o.Listen)
	if err != nil {
		return protocol.Errorf(protocol.CodeUnavailable, "HTTP cannot listen on %s: %v; free it, or choose another with --http", s.o.Listen, err)
	}
	s.address = l.Addr().String()
	s.log.Info("serving HTTP", "url", "http://"+s.address)
	server := s.server()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.finish(fmt.Errorf("serving HTTP on %s: %w", s.address, err))
		}
	}()
	s.stop.Add("HTTP", func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil { // requests that are slower than ctx are cut off
			err = errors.Join(err, server.Close())
		}
		<-served
		return err
	})
	return nil
}

// Address is where HTTP is served, with the port that was taken; "" before
// Start.
func (s *Service) Address() string { return s.address }

// Stop answers the requests under way and disconnects, at most until ctx ends.
// A further call waits for the first.
func (s *Service) Stop(ctx context.Context) error {
	err := s.stop.Stop(ctx)
	s.finish(err)
	return err
}

func (s *Service) finish(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.done)
	})
}

// Done is closed when the service has stopped, by Stop or because it cannot
// serve HTTP any more.
func (s *Service) Done() <-chan struct{} { return s.done }

// Err is how it stopped; it may be called after Done.
func (s *Service) Err() error { return s.err }

func (s *Service) stats(context.Context, protocol.Empty) (protocol.Stats, error) {
	return protocol.Stats{
		Service: serviceName, Instance: s.o.Instance, Version: s.o.Version,
		Counters: map[string]uint64{}, Gauges: map[string]float64{},
	}, nil
}

func (s *Service) ready(context.Context, protocol.Empty) (protocol.Ready, error) {
	return protocol.Ready{Service: serviceName, Instance: s.o.Instance, Ready: true}, nil
}
