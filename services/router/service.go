// Package router takes publishes, delivers messages to workers and settles
// them by their outcomes. It stands on lanes: a fixed number of ledgers,
// spread over the routers, each queue belonging to the lane its name hashes to.
package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/pkg/tracing"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/builtin"
)

const (
	serviceName  = "router"
	closeTimeout = 5 * time.Second
	drainLook    = 5 * time.Millisecond
)

// Message ids need one random number each: a pool makes them cheap. It is
// enabled before anything can ask for one.
var _ = func() bool {
	uuid.EnableRandPool()
	return true
}()

// Options of New.
type Options struct {
	// Mesh says how NATS is reached.
	Mesh mesh.ConnectOptions
	// Instance tells routers apart; default a random one. A router that starts
	// again under the same name has its lanes back at once.
	Instance string
	Version  string
	Logger   *slog.Logger
	// Brokers are those that may have queues beside the builtin transport.
	Brokers []broker.Remote
	// Configured has the router take its adapter from the mesh's configuration: it
	// waits for the registry when it starts.
	Configured bool
	// Adapter is the one of Brokers that queues are on; default none, so that they
	// are builtin. Raw subscriptions to topics, and what is scheduled until it is
	// due, always are.
	Adapter string
	// Lanes is the number made at the first start of the mesh; default 16.
	Lanes int
	// Replicas of the log; default 1.
	Replicas int
	// Durability is the word of publish answers; default fsync.
	Durability string
	// Limits bound what may be published; default none.
	Limits Limits
	// Space says what the disk that everything is stored on has left, and its
	// size, in bytes. What is published may not use the last of it. Default: what
	// NATS says, if it is `waybill nats`; any other keeps to bounds of its own.
	Space func() (free, total int64, err error)
	// Slack is by how much the log may outgrow twice what is live, in bytes;
	// default ledger.DefaultSlack, or less on a small disk.
	Slack int64
	// InMemory has everything kept in memory alone, if this is its first start: what
	// is stored is lost when NATS ends, and publish
	// answers say so.
	InMemory bool
	// MaxPayload of a message in bytes; default 1 MiB, less if NATS takes less.
	MaxPayload int
	// Bodies bounds the message bodies kept in memory, in bytes; default 64 MiB.
	Bodies int64
	// Drain is how long Stop waits for outcomes of deliveries in workers'
	// hands; default 10 s, and never longer than its context.
	Drain time.Duration
	// AcceptLoss is the operator's word to open a damaged log.
	AcceptLoss bool
}

// Service is one router.
type Service struct {
	o       Options
	log     *slog.Logger
	started time.Time
	tracer  *tracing.Tracer // nil: no spans are made

	bulk    *nats.Conn // publishes, deliveries, outcomes and endpoints
	logs    *nats.Conn // the ledgers'
	mesh    *mesh.Service
	keeper  *ledger.Keeper
	builtin *builtin.Broker
	bodies  *ledger.Bodies

	places     atomic.Pointer[[]*slot]
	inbox      string
	maxPayload int
	words      words // of publishes to the builtin transport
	brokers    brokers
	census     census
	// takersOwn: a job runs in the namespace of who takes it.
	takersOwn bool

	settings    settings
	directory   *directory
	definitions *definitions
	presence    *presence
	peers       peers
	space       space
	next        next

	draining   atomic.Bool
	superseded atomic.Uint64 // outcomes that name nothing that is stored
	refused    atomic.Uint64

	lifecycle mesh.Lifecycle
	ending    sync.WaitGroup // the watches
	lanes     sync.WaitGroup // what each open lane leaves to be done
	stopOnce  sync.Once
	done      chan struct{}
	err       error
}

// New checks the options; nothing runs before Start.
func New(o Options) (*Service, error) {
	o.Instance = cmp.Or(o.Instance, nuid.Next())
	if o.InMemory {
		o.Durability = protocol.DurabilityMemory
	}
	o.Durability = cmp.Or(o.Durability, protocol.DurabilityFsync)
	o.MaxPayload = cmp.Or(o.MaxPayload, protocol.DefaultMaxPayload)
	o.Bodies = cmp.Or(o.Bodies, 64<<20)
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxPayload < 1 || o.Lanes < 0 || o.Drain < 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the router's limits and times are not negative")
	}
	if err := scope.CheckToken(o.Instance); err != nil {
		return nil, err
	}
	s := &Service{
		o: o, log: o.Logger.With("service", serviceName), started: time.Now(),
		inbox: nats.NewInbox(), done: make(chan struct{}),
		tracer: tracing.New(otel.GetTracerProvider(), library, o.Version),
	}
	s.directory, s.definitions, s.presence = newDirectory(s), newDefinitions(s), newPresence(s)
	s.settings.current = protocol.DefaultSettings()
	s.builtin = builtin.New(o.Durability, s.nextOf)
	s.words = wordsFor(s.builtin.Name(), s.builtin.Durability())
	s.brokers.soon = make(chan struct{}, 1)
	if err := s.fixedPlacement(); err != nil {
		return nil, err
	}
	return s, nil
}

var _ broker.Broker = (*builtin.Broker)(nil)

// Start connects, takes this router's lanes and serves. It fails with
// UNAVAILABLE if NATS is not there before ctx ends, and with a
// *ledger.DamageError if a log is damaged.
func (s *Service) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			err = errors.Join(err, s.Stop(ctx))
		}
	}()
	for _, step := range []func(context.Context) error{s.connect, s.checkProvider, s.openBrokers, s.configure, s.takeLanes, s.listen, s.watch, s.serve} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// connect makes the connections. Bulk goes over TCP, which pipelines better; what
// a ledger writes, one frame after the other, inside the process, which answers
// sooner.
func (s *Service) connect(ctx context.Context) error {
	o := s.o.Mesh
	o.Logger, o.Name = s.log, cmp.Or(o.Name, "waybill-router")
	bulk := o
	if bulk.URL != "" {
		bulk.InProcess = nil
	}
	var err error
	if s.bulk, err = mesh.Connect(ctx, bulk); err != nil {
		return err
	}
	s.lifecycle.Add("connection", func(context.Context) error { return closeConn(s.bulk) })
	o.Name, o.NoBuffer = o.Name+"-ledgers", true
	if s.logs, err = mesh.Connect(ctx, o); err != nil {
		return err
	}
	s.lifecycle.Add("ledgers' connection", func(context.Context) error { return closeConn(s.logs) })
	s.maxPayload = min(s.o.MaxPayload, int(s.bulk.MaxPayload())-protocol.MaxHeaderBytes-2*protocol.MaxErrorText)
	if s.maxPayload < 1 {
		return protocol.Errorf(protocol.CodeUnsupported, "NATS takes messages of %d bytes only: raise its max_payload, to 8 MiB if possible", s.bulk.MaxPayload())
	}
	if s.maxPayload < s.o.MaxPayload {
		s.log.Warn("NATS bounds the payload", "bytes", s.maxPayload, "wanted", s.o.MaxPayload)
	}
	return nil
}

// closeConn sends what is left and closes.
func closeConn(nc *nats.Conn) error {
	if nc.IsConnected() {
		if err := nc.FlushTimeout(closeTimeout); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			nc.Close()
			return err
		}
	}
	nc.Close()
	return nil
}

// takeLanes opens this router's share of the lanes. They dispatch once the
// registry has told who works on them.
func (s *Service) takeLanes(ctx context.Context) (err error) {
	s.mesh, err = mesh.NewService(s.bulk, mesh.ServiceOptions{
		Name: serviceName, Instance: s.o.Instance, Version: s.o.Version, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.lifecycle.Add("endpoints", s.mesh.Stop)
	s.bodies = ledger.NewBodies(s.o.Bodies)
	s.keeper = ledger.NewKeeper(ledger.KeeperOptions{
		Conn: s.logs, Service: serviceName, Ledgers: s.o.Lanes, Instance: s.o.Instance,
		Replicas: s.o.Replicas, Open: s.openLane, AcceptLoss: s.o.AcceptLoss, Slack: s.o.Slack, Memory: s.o.InMemory, Logger: s.log,
	})
	if _, err := s.mesh.Raw("answers", s.inbox+".>", "", s.answer); err != nil {
		return err
	}
	if err := mesh.EveryInstance(s.mesh, "ready", protocol.SubjectReady, s.ready); err != nil {
		return err
	}
	s.lifecycle.Add("lanes", s.closeLanes)
	return s.keeper.Start(ctx)
}

// closeLanes gives the lanes away and waits until nothing of them is left here.
func (s *Service) closeLanes(ctx context.Context) error {
	err := s.keeper.Stop(ctx)
	s.lanes.Wait()
	return err
}

// listen takes what others tell this router.
func (s *Service) listen(context.Context) error {
	s.makeSlots(s.keeper.Total())
	for _, sub := range []struct {
		name, subject string
		handle        nats.MsgHandler
	}{
		{"keepalive", protocol.SubjectKeepalive + "*", s.presence.keptAlive},
		{"workers", protocol.SubjectWorkerChanged, s.directory.changed},
		{"settings", protocol.SubjectSettingsChanged, s.settingsChanged},
		{"config", protocol.SubjectConfigChanged, s.definitions.changed},
		{"load", protocol.SubjectLoad, s.peers.heard},
	} {
		if _, err := s.mesh.Raw(sub.name, sub.subject, "", sub.handle); err != nil {
			return err
		}
	}
	return nil
}

// watch starts the goroutines that follow the registry, the workers and the
// connection. They go on while the lanes drain.
func (s *Service) watch(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.lifecycle.Add("watches", func(context.Context) error {
		cancel()
		s.ending.Wait()
		return nil
	})
	status := s.bulk.StatusChanged(nats.CONNECTED)
	s.ending.Go(func() { s.directory.run(ctx) })
	s.ending.Go(func() { s.definitions.run(ctx) })
	s.ending.Go(func() { s.presence.run(ctx) })
	s.ending.Go(func() { s.reconnected(ctx, status) })
	s.ending.Go(func() { s.report(ctx) })
	if s.lookAtSpace(ctx) {
		s.ending.Go(func() { s.watchSpace(ctx) })
	}
	s.ending.Go(func() { s.learnNext(ctx) })
	s.ending.Go(func() { s.lookForOwners(ctx) })
	s.ending.Go(func() { s.tendBrokers(ctx) })
	s.ending.Go(func() { s.keepCensus(ctx) })
	s.lifecycle.Add("deliveries", s.drain)
	return nil
}

// reconnected begins anew what a lost connection made uncertain.
func (s *Service) reconnected(ctx context.Context, status <-chan nats.Status) {
	for {
		select {
		case <-status:
			s.presence.restart()
			s.directory.refreshSoon()
			s.definitions.readSoon()
		case <-ctx.Done():
			return
		}
	}
}

// report tells the others this router's load.
func (s *Service) report(ctx context.Context) {
	t := time.NewTicker(protocol.LoadInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.tellLoad()
		case <-ctx.Done():
			return
		}
	}
}

// serve takes publishes and questions; when it returns NATS knows.
func (s *Service) serve(ctx context.Context) error {
	queues, err := s.mesh.Raw("publish-queue", protocol.SubjectPublishQueue+">", mesh.QueueGroup,
		s.queueIngress(protocol.SubjectPublishQueue, true).publish)
	if err != nil {
		return err
	}
	s.lifecycle.Add("publishes", queues.Drain) // another router takes them from then on
	topics, err := s.mesh.Raw("publish-topic", protocol.SubjectPublishTopic+">", mesh.QueueGroup,
		s.topicIngress(protocol.SubjectPublishTopic, true).publish)
	if err != nil {
		return err
	}
	s.lifecycle.Add("publishes to topics", topics.Drain)
	jobs, err := s.mesh.Raw("publish-job", protocol.SubjectPublishJob+">", mesh.QueueGroup, s.jobIngress(protocol.SubjectPublishJob, true).publish)
	if err != nil {
		return err
	}
	s.lifecycle.Add("jobs", jobs.Drain)
	enqueues, err := s.mesh.Raw("enqueue", protocol.FunctionSubject(protocol.DefaultNamespace, protocol.FunctionEnqueue), mesh.QueueGroup, s.enqueueIngress(true).call)
	if err != nil {
		return err
	}
	s.lifecycle.Add("enqueue", enqueues.Drain)
	data, err := s.mesh.Raw("publish-data", protocol.FunctionSubject("*", protocol.FunctionPublish), mesh.QueueGroup, s.dataIngress(true).call)
	if err != nil {
		return err
	}
	s.lifecycle.Add("publishes of data", data.Drain)
	if err := mesh.EveryInstance(s.mesh, "prepare", protocol.SubjectPrepare, s.prepare); err != nil {
		return err
	}
	if err := mesh.EveryInstance(s.mesh, "brokers", protocol.SubjectBrokers, s.listBrokers); err != nil {
		return err
	}
	if err := mesh.EveryInstance(s.mesh, "queues", protocol.SubjectQueues, s.queues); err != nil {
		return err
	}
	if err := mesh.EveryInstance(s.mesh, "executions", protocol.SubjectRouterExecutions, s.executions); err != nil {
		return err
	}
	if err := mesh.Endpoint(s.mesh, "trail", protocol.TrailSubject(serviceName), books.NewTrails(s.bulk, serviceName).Find); err != nil {
		return err
	}
	if err := mesh.EveryInstance(s.mesh, "stats", protocol.SubjectStats, s.stats); err != nil {
		return err
	}
	return s.mesh.Flush(ctx)
}

// Stop drains: it refuses publishes, dispatches nothing more, waits for the
// outcomes of what is in workers' hands for at most Options.Drain, commits and
// disconnects, all at most until ctx ends. What is not finished by then goes
// on under the lanes' next owner. A further call waits for the first.
func (s *Service) Stop(ctx context.Context) error {
	err := s.lifecycle.Stop(ctx)
	s.stopOnce.Do(func() {
		s.err = err
		close(s.done)
	})
	return err
}

// Done is closed when the router has stopped.
func (s *Service) Done() <-chan struct{} { return s.done }

// Err is how it stopped; it may be called after Done.
func (s *Service) Err() error { return s.err }

// clock is the monotonic time since the service was made, in ns, to which time
// limits refer: they do not move when the machine's clock is set.
func (s *Service) clock(now time.Time) int64 { return int64(now.Sub(s.started)) }

// drain stops dispatching everywhere and waits until no worker holds a
// delivery, as long as the service may. With other routers there it does not:
// the lanes are theirs the sooner, and outcomes find the lane's owner.
func (s *Service) drain(ctx context.Context) error {
	s.draining.Store(true)
	s.eachLane((*lane).drain)
	if !s.keeper.Alone() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Drain)
	defer cancel()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for s.inHand() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			s.log.Info("deliveries in workers' hands go on under the lanes' next owner", "deliveries", s.inHand())
			return nil
		}
	}
	return nil
}

// inHand is the number of deliveries in workers' hands, and of failed ones
// whose verdict is not recorded.
func (s *Service) inHand() (n int64) {
	for _, at := range s.slots() {
		if o := at.current.Load(); o != nil {
			n += o.lane.held.Load() + o.lane.open.Load()
		}
	}
	return n
}

// inWorkersHands are the deliveries whose handlers run.
func (s *Service) inWorkersHands() (n int64) {
	for _, at := range s.slots() {
		if o := at.current.Load(); o != nil {
			n += o.lane.held.Load()
		}
	}
	return n
}
