package books

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

const (
	defaultBodies = 64 << 20
	giveUpAfter   = 5 * time.Second // a round trip, cleaning up after a start that failed
)

// HostOptions of NewHost. The functions are the service's own part.
type HostOptions[O Owner[O]] struct {
	Service  string // retry or dlq
	Mesh     mesh.ConnectOptions
	Instance string // one subject token; default a random one
	Version  string
	Logger   *slog.Logger // default none
	// Ledgers is the number made at the service's first start; default 4.
	Ledgers int
	// Replicas of what is stored; default 1.
	Replicas int
	// Bodies bounds the bodies kept in memory, in bytes; default 64 MiB.
	Bodies int64
	// AcceptLoss opens a damaged ledger without what cannot be read.
	AcceptLoss bool
	// Slack is by how much the log may outgrow twice what is live, in bytes;
	// default ledger.DefaultSlack, or less on a small disk.
	Slack int64
	// InMemory has everything kept in memory alone, if this is its first start: what
	// is stored is lost when NATS ends.
	InMemory bool

	// NewOwner makes the owner of a ledger that is about to be opened.
	NewOwner func() O
	// Ledger is the subject, followed by <ledger>.<verb>, of questions to the
	// owner of one ledger.
	Ledger string
	// Serve adds the endpoints of an open ledger, which end with it.
	Serve func(book *Book[O]) ([]*mesh.Subscription, error)
	// Queues is the subject that lists queues, and Fill puts the number of
	// messages that lie in one where the service's messages belong.
	Queues string
	// Executions is the subject that adds them up by execution.
	Executions string
	Fill       func(info *protocol.QueueInfo, idle int64)
	// Gauge is what the service calls its messages in Stats.
	Gauge string
	// Late is for how long something has been due at an owner; nil: nothing is
	// ever due.
	Late func(owner O) time.Duration
}

// Host runs what is alike in services that hold messages in ledgers of their
// own: connections, the ledgers, and what they tell of them.
type Host[O Owner[O]] struct {
	// Books are the open ledgers.
	Books Books[O]
	// Lanes says where messages go from here.
	Lanes Lanes
	// Mesh and Conn are there after Start.
	Mesh *mesh.Service
	Conn *nats.Conn

	o      HostOptions[O]
	bodies *ledger.Bodies
	keeper *ledger.Keeper
	stop   mesh.Lifecycle
	served sync.WaitGroup // goroutines of open ledgers

	mu       sync.Mutex
	begun    chan struct{} // closed when Start has returned; nil before Start
	cancel   context.CancelFunc
	stopping bool

	end  sync.Once
	done chan struct{}
	err  error
}

// NewHost makes a host, which does nothing until Start. It is INVALID_NAME or
// INVALID_ARGS if the options make no sense.
func NewHost[O Owner[O]](o HostOptions[O]) (*Host[O], error) {
	o.Instance = cmp.Or(o.Instance, nuid.Next())
	if err := scope.CheckToken(o.Instance); err != nil {
		return nil, err
	}
	if o.Ledgers < 0 || o.Replicas < 0 || o.Bodies < 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "ledgers, replicas and bodies are numbers above 0, or 0 for the default; got %d, %d, %d", o.Ledgers, o.Replicas, o.Bodies)
	}
	o.Bodies = cmp.Or(o.Bodies, defaultBodies)
	o.Mesh.Name = cmp.Or(o.Mesh.Name, "waybill-"+o.Service)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Mesh.Logger = cmp.Or(o.Mesh.Logger, o.Logger)
	return &Host[O]{o: o, bodies: ledger.NewBodies(o.Bodies), done: make(chan struct{})}, nil
}

// Start connects, takes this instance's share of the ledgers, opens them, and
// answers for them; endpoints adds the service's own answers. It is called
// once, and leaves nothing behind if it fails or a Stop ends it: CONFLICT then.
func (h *Host[O]) Start(ctx context.Context, endpoints func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := make(chan struct{})
	h.mu.Lock()
	if h.begun != nil || h.stopping {
		h.mu.Unlock()
		return protocol.Errorf(protocol.CodeConflict, "the %s service was started or stopped before: make a new one", h.o.Service)
	}
	h.begun, h.cancel = begun, cancel
	h.mu.Unlock()

	err := h.start(ctx, endpoints)
	close(begun)
	if err == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), giveUpAfter)
	defer cancel()
	return errors.Join(err, h.Stop(ctx))
}

func (h *Host[O]) start(ctx context.Context, endpoints func() error) (err error) {
	if h.Conn, err = h.connect(ctx, h.o.Mesh); err != nil {
		return err
	}
	conn, err := h.connect(ctx, bulk(h.o.Mesh))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	h.Mesh, err = mesh.NewService(h.Conn, mesh.ServiceOptions{
		Name: h.o.Service, Instance: h.o.Instance, Version: h.o.Version, Logger: h.o.Logger,
	})
	if err != nil {
		return err
	}
	h.keeper = h.newKeeper(conn)
	h.stop.Add("ledgers", h.closeLedgers)
	h.background(js)
	h.stop.Add("endpoints", h.Mesh.Stop)
	err = mesh.EveryInstance(h.Mesh, "ready", protocol.SubjectReady, func(context.Context, protocol.Empty) (protocol.Ready, error) {
		return h.ready(), nil
	})
	if err != nil {
		return err
	}
	if err := h.keeper.Start(ctx); err != nil {
		return err
	}
	if err := errors.Join(h.answer(), endpoints()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, giveUpAfter)
	defer cancel()
	return h.Mesh.Flush(ctx) // from here on it is heard
}

// Stop answers what has arrived, commits what is staged, frees the ledgers for
// others and disconnects, at most until ctx ends. It ends a Start under way. A
// further call waits for the first.
func (h *Host[O]) Stop(ctx context.Context) error {
	h.mu.Lock()
	h.stopping = true
	begun := h.begun
	if h.cancel != nil {
		h.cancel()
	}
	h.mu.Unlock()
	if begun != nil {
		select {
		case <-begun:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := h.stop.Stop(ctx)
	h.end.Do(func() {
		h.err = err
		close(h.done)
	})
	return err
}

// Done is closed when the host has stopped.
func (h *Host[O]) Done() <-chan struct{} { return h.done }

// Err is how it stopped; it may be called after Done.
func (h *Host[O]) Err() error { return h.err }

// Total is the number of the service's ledgers, wherever they are open.
func (h *Host[O]) Total() int { return h.keeper.Total() }

func (h *Host[O]) connect(ctx context.Context, o mesh.ConnectOptions) (*nats.Conn, error) {
	conn, err := mesh.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	h.stop.Add("connection", func(context.Context) error {
		conn.Close()
		return nil
	})
	return conn, nil
}

// bulk is for the ledgers: without a reconnect buffer, and over TCP where that
// is possible, since it pipelines better than an in-process connection.
func bulk(o mesh.ConnectOptions) mesh.ConnectOptions {
	o.Name += "-ledgers"
	o.NoBuffer = true
	if o.URL != "" {
		o.InProcess = nil
	}
	return o
}

func (h *Host[O]) newKeeper(conn *nats.Conn) *ledger.Keeper {
	return ledger.NewKeeper(ledger.KeeperOptions{
		Conn: conn, Service: h.o.Service, Ledgers: h.o.Ledgers, Instance: h.o.Instance,
		Replicas: h.o.Replicas, AcceptLoss: h.o.AcceptLoss, Slack: h.o.Slack, Memory: h.o.InMemory, Logger: h.o.Logger,
		Open: func(ctx context.Context, name string) (ledger.Handle, error) {
			book, err := h.Books.Open(ctx, ledger.Options{
				Conn: conn, Stream: ledger.StreamOf(h.o.Service), Name: name, Owner: h.o.Instance,
				Bodies: h.bodies, AcceptLoss: h.o.AcceptLoss, Logger: h.o.Logger,
			}, h.o.NewOwner())
			if err != nil {
				return nil, err
			}
			return h.serve(ctx, book)
		},
	})
}

// background learns where messages go and reports the load, until the host is
// stopped.
func (h *Host[O]) background(js jetstream.JetStream) {
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := h.Lanes.Learn(ctx, js); err == nil {
			h.Books.Wake()
		}
	})
	tasks.Go(func() {
		ReportLoad(ctx, &h.Books, h.Conn, protocol.Load{Service: h.o.Service, Instance: h.o.Instance}, h.o.Logger)
	})
	h.stop.Add("background", func(context.Context) error {
		cancel()
		tasks.Wait()
		return nil
	})
}

func (h *Host[O]) closeLedgers(ctx context.Context) error {
	err := h.keeper.Stop(ctx)
	h.served.Wait()
	return err
}

// answer adds the endpoints that every such service has.
func (h *Host[O]) answer() error {
	return errors.Join(
		mesh.EveryInstance(h.Mesh, "stats", protocol.SubjectStats, h.stats),
		mesh.Endpoint(h.Mesh, "trail", protocol.TrailSubject(h.o.Service), NewTrails(h.Conn, h.o.Service).Find),
		mesh.EveryInstance(h.Mesh, "executions", h.o.Executions, func(ctx context.Context, q protocol.ExecutionsRequest) (protocol.ExecutionCountsPage, error) {
			page, err := Executions(ctx, &h.Books, q, h.o.Fill)
			page.Instance, page.Total = h.o.Instance, h.keeper.Total()
			return page, err
		}),
		mesh.EveryInstance(h.Mesh, "queues", h.o.Queues, func(ctx context.Context, q protocol.QueuesRequest) (protocol.QueuesPage, error) {
			page, err := Queues(ctx, &h.Books, q, h.o.Fill)
			page.Instance, page.Total = h.o.Instance, h.keeper.Total()
			return page, err
		}),
	)
}

func (h *Host[O]) ready() protocol.Ready {
	open, waiting := h.keeper.Ready()
	if !h.Lanes.Known() {
		waiting = append(waiting, "no router has started on this NATS yet, so there is nowhere to send messages to")
	}
	return protocol.Ready{
		Service: h.o.Service, Instance: h.o.Instance, Ready: open && h.Lanes.Known(), Waiting: waiting,
	}
}

func (h *Host[O]) stats(ctx context.Context, _ protocol.Empty) (protocol.Stats, error) {
	sum, err := Sum(ctx, &h.Books)
	late, errLate := h.late(ctx)
	return protocol.Stats{
		Share:   protocol.Share{Ledgers: sum.Ledgers, Total: h.keeper.Total()},
		Service: h.o.Service, Instance: h.o.Instance, Version: h.o.Version,
		Counters: sum.Counts.Named(), Routes: sum.Counts.Told(),
		Gauges: map[string]float64{
			h.o.Gauge:         float64(sum.Messages - sum.Moving),
			"moving":          float64(sum.Moving),
			"bytes":           float64(sum.Bytes),
			"queues":          float64(sum.Queues),
			"ledgers":         float64(sum.Ledgers),
			"overdue_seconds": late.Seconds(),
		},
	}, errors.Join(err, errLate)
}

// late is for how long the oldest has been due.
func (h *Host[O]) late(ctx context.Context) (time.Duration, error) {
	if h.o.Late == nil {
		return 0, nil
	}
	all, err := each(ctx, &h.Books, h.o.Late)
	return slices.Max(append(all, 0)), err
}
