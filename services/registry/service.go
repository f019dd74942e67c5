// Package registry is the service that knows who is there: the workers, the
// subscriptions of executions and the functions they declared, and whether they
// still live.
//
// A worker's record is in a KV bucket, so it survives a restart and is the same
// for every registry; whether the worker lives is in memory, from its
// keepalives, and every registry judges for itself.
package registry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const serviceName = "registry"

// Options of New.
type Options struct {
	Mesh mesh.ConnectOptions
	// Instance tells this instance from the others: one subject token. Default
	// a random one.
	Instance string
	Version  string
	Logger   *slog.Logger // default none
	// Replicas of the bucket, made at the first start on this NATS; default 1.
	Replicas int
	// Silence is how long a worker may be silent before it is gone; default
	// protocol.WorkerSilence. Workers are told to send a keepalive three times
	// as often.
	Silence time.Duration
	// Tombstone is how long an execution that was closed and is empty refuses
	// publishes; default protocol.TombstoneTime.
	Tombstone time.Duration
	// Config is what is set of the mesh's configuration at Start.
	Config ConfigOptions
	// Alone: no other service runs. An edit of the configuration is stored without
	// them, and holds when they start; UNAVAILABLE for what they would have to do.
	Alone bool
}

// ConfigOptions are part of Options.
type ConfigOptions struct {
	// Seed is what is set where nobody has configured anything yet.
	Seed config.Document
	// Change is changed at each Start: what it does not name stays as it is stored.
	Change config.Document
	// By says in the history who that is; default registry.
	By string
}

func (o Options) keepalive() time.Duration { return o.Silence / 3 }

// Service is one instance of the registry.
type Service struct {
	o   Options
	log *slog.Logger

	nc    *nats.Conn
	mesh  *mesh.Service
	store *store
	known *directory
	alive *presence
	// closed executions
	closed        executions
	configuration configuration
	confirmed     confirmed
	events        chan event // for observers of changes
	// watching: what is known follows the bucket
	watching atomic.Bool

	stop    mesh.Lifecycle
	ctx     context.Context // of the service's own goroutines
	working sync.WaitGroup  // which are these
	done    chan struct{}
	once    sync.Once
	err     error
}

// New makes a service, which does nothing until Start. It is INVALID_NAME for
// an Instance that is no subject token.
func New(o Options) (*Service, error) {
	o.Instance = cmp.Or(o.Instance, nuid.Next())
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.Silence = cmp.Or(o.Silence, protocol.WorkerSilence)
	o.Tombstone = cmp.Or(o.Tombstone, protocol.TombstoneTime)
	o.Mesh.Name = cmp.Or(o.Mesh.Name, "waybill-"+serviceName)
	o.Config.By = cmp.Or(o.Config.By, serviceName)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := scope.CheckToken(o.Instance); err != nil {
		return nil, err
	}
	log := o.Logger.With("service", serviceName)
	o.Mesh.Logger = cmp.Or(o.Mesh.Logger, log)
	s := &Service{o: o, log: log, done: make(chan struct{}), events: make(chan event, maxFeed)}
	s.known = newDirectory()
	s.closed = executions{docs: map[string]*executionDoc{}, told: map[string]int{}, busy: map[string]chan struct{}{}}
	s.alive = newPresence(o.Silence)
	s.confirmed.revisions = map[string]uint64{}
	s.configuration.see(complete(&configDoc{}))
	asked := config.Check(o.Config.Seed.Merge(o.Config.Change))
	if err := asked.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Start connects, reads every record and serves. It fails with UNAVAILABLE if
// NATS cannot be reached before ctx ends; nothing is left behind then. It is
// called once.
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
	if s.store, err = openStore(ctx, s.nc, s.o.Replicas); err != nil {
		return err
	}
	if err := s.beginConfig(ctx); err != nil {
		return err
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	s.mesh, err = mesh.NewService(s.nc, mesh.ServiceOptions{
		Name: serviceName, Instance: s.o.Instance, Version: s.o.Version, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.stop.Add("endpoints", s.mesh.Stop)
	if err := s.serve(); err != nil {
		return err
	}
	return s.mesh.Flush(ctx)
}

// follow begins to keep what is known in line with the bucket, and presence
// with the clock; it returns when every record has been read.
func (s *Service) follow(ctx context.Context) error {
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(context.Background())
	s.stop.Add("watch", func(context.Context) error {
		cancel()
		s.working.Wait()
		return nil
	})
	s.alive.nobodyBefore(time.Now())
	read := make(chan struct{})
	s.working.Go(func() { s.watch(s.ctx, sync.OnceFunc(func() { close(read) })) })
	s.working.Go(func() { s.expire(s.ctx) })
	s.working.Go(func() { s.watchExecutions(s.ctx) })
	s.working.Go(func() { s.watchConfig(s.ctx) })
	s.working.Go(func() { s.buryAll(s.ctx) })
	s.working.Go(func() { s.feed(s.ctx) })
	s.working.Go(func() { s.retireReplaced(s.ctx) })
	select {
	case <-read:
		return nil
	case <-ctx.Done():
		return protocol.Errorf(protocol.CodeUnavailable, "the worker records could not be read in time: is JetStream there?")
	}
}

func (s *Service) serve() error {
	_, err := s.mesh.Raw("keepalive", protocol.SubjectKeepalive+"*", "", s.keepalive)
	_, told := s.mesh.Raw("workers-changed", protocol.SubjectWorkerChanged, "", s.told)
	return errors.Join(err, told, s.provide(),
		mesh.Endpoint(s.mesh, "hello", protocol.SubjectHello, s.hello),
		mesh.Endpoint(s.mesh, "bye", protocol.SubjectBye, s.bye),
		mesh.Endpoint(s.mesh, "workers", protocol.SubjectWorkers, s.workers),
		mesh.Endpoint(s.mesh, "subscriptions", protocol.SubjectSubscription, s.subscriptions),
		mesh.Endpoint(s.mesh, "functions", protocol.SubjectFunctions, s.functions),
		mesh.Endpoint(s.mesh, "policy", protocol.SubjectPolicy, s.policy),
		mesh.Endpoint(s.mesh, "observers", protocol.SubjectObservers, s.observers),
		mesh.Endpoint(s.mesh, "observer-remove", protocol.SubjectObserverRemove, s.removeObserver),
		mesh.Endpoint(s.mesh, "settings", protocol.SubjectSettings, s.readSettings),
		mesh.Endpoint(s.mesh, "settings-change", protocol.SubjectSettingsChange, s.changeSettings),
		mesh.Endpoint(s.mesh, "config", protocol.SubjectConfig, s.readConfig),
		mesh.Endpoint(s.mesh, "config-change", protocol.SubjectConfigEdit, s.changeConfig),
		mesh.Endpoint(s.mesh, "config-history", protocol.SubjectConfigHistory, s.configHistory),
		mesh.Endpoint(s.mesh, "define", protocol.SubjectDefine, s.define),
		mesh.Endpoint(s.mesh, "definitions", protocol.SubjectDefinitions, s.listDefinitions),
		mesh.Endpoint(s.mesh, "queue-remove", protocol.SubjectQueueRemove, s.removeQueue),
		mesh.Endpoint(s.mesh, "executions", protocol.SubjectExecutions, s.executionsPage),
		mesh.Endpoint(s.mesh, "execution-close", protocol.SubjectExecutionClose, s.closeExecution),
		mesh.Endpoint(s.mesh, "execution-reopen", protocol.SubjectExecutionReopen, s.reopenExecution),
		mesh.EveryInstance(s.mesh, "stats", protocol.SubjectStats, s.stats),
		mesh.EveryInstance(s.mesh, "ready", protocol.SubjectReady, s.ready),
	)
}

// Stop answers what has arrived and disconnects, at most until ctx ends. A
// further call waits for the first.
func (s *Service) Stop(ctx context.Context) error {
	s.once.Do(func() {
		s.err = s.stop.Stop(ctx)
		close(s.done)
	})
	return s.err
}

// Done is closed when the service has stopped.
func (s *Service) Done() <-chan struct{} { return s.done }

// Err is how it stopped; it may be called after Done.
func (s *Service) Err() error { return s.err }

func (s *Service) stats(context.Context, protocol.Empty) (protocol.Stats, error) {
	workers, subscriptions, functions := s.known.size()
	return protocol.Stats{
		Service: serviceName, Instance: s.o.Instance, Version: s.o.Version,
		Counters: map[string]uint64{},
		Gauges: map[string]float64{
			"workers": float64(workers), "subscriptions": float64(subscriptions), "functions": float64(functions),
		},
	}, nil
}

// ready: whoever can answer at all has read every record once.
func (s *Service) ready(context.Context, protocol.Empty) (protocol.Ready, error) {
	r := protocol.Ready{Service: serviceName, Instance: s.o.Instance, Ready: s.watching.Load()}
	if !r.Ready {
		r.Waiting = []string{"the worker records cannot be watched: is JetStream there?"}
	}
	return r, nil
}
