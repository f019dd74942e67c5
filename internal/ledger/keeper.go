package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// DefaultLease is how long an instance may be silent before others take its
// ledgers.
const DefaultLease = 5 * time.Second

// LeaseBucket is the KV bucket with a record per service of who keeps which
// ledger.
const LeaseBucket = "WAYBILL_LEASES"

// Handle is an open ledger as its keeper sees it; a *Running is one.
type Handle interface {
	Forwarder
	// Stop closes it and waits.
	Stop(ctx context.Context) error
	// Done is closed when it has closed, by Stop or by itself.
	Done() <-chan struct{}
	// Err is why it closed by itself.
	Err() error
}

// KeeperOptions of NewKeeper.
type KeeperOptions struct {
	Conn    *nats.Conn
	Service string // router, retry or dlq
	// Ledgers is the number made at the service's first start on this NATS;
	// afterwards the stream says. Default 16 for router, 4 for others.
	Ledgers int
	// Instance is the owner of the leases: one subject token. One that is
	// started again under the same name has its ledgers back at once; two that
	// run at a time under one name take them from each other.
	Instance string
	// Replicas of the stream and of the lease bucket; default 1.
	Replicas int
	// Open opens a ledger. It is called in a goroutine per ledger, and again
	// when the ledger closes by itself.
	Open func(ctx context.Context, name string) (Handle, error)
	// Lease is how long an instance may be silent before the others take its
	// ledgers; default DefaultLease. It is the same for all instances.
	Lease time.Duration
	// AcceptLoss is the operator's word to go on with a stream that ends before
	// what is known to have been committed. Default false: Start returns a
	// *DamageError.
	AcceptLoss bool
	// Slack is the janitor's, in bytes; default DefaultSlack, or what SlackOn says of
	// a disk that is known.
	Slack int64
	// Memory has the stream, if it is made, kept in memory alone: what is in it is
	// lost when NATS ends.
	Memory bool
	Logger *slog.Logger // default none
}

func (o KeeperOptions) beat() time.Duration { return o.Lease / 5 }

// Keeper keeps this instance's share of a service's ledgers open, and their
// stream short. Leases only
// decide who tries: that a ledger has one writer is the log's own doing.
type Keeper struct {
	o      KeeperOptions
	stream jetstream.Stream
	kv     jetstream.KeyValue
	all    []string // the service's ledgers

	cancel  context.CancelFunc
	working sync.WaitGroup // the beating goroutine and the janitor
	wake    chan struct{}  // a released ledger has closed, or others say that something changed
	hints   *nats.Subscription
	stop    sync.Once
	stopErr error

	seen view // used by the beating goroutine, and by Start before it

	mu      sync.Mutex
	slots   map[string]*slot
	leaving map[string]*slot // released, until the record says so
	orphans []string         // ledgers without a living owner, as Ready says it
	others  int              // living instances beside this one
	beaten  time.Time        // when the last renewal that succeeded began
}

// NewKeeper makes a keeper, which does nothing until Start.
func NewKeeper(o KeeperOptions) *Keeper {
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("service", o.Service)
	return &Keeper{
		o: o, wake: make(chan struct{}, 1),
		seen: view{}, slots: map[string]*slot{}, leaving: map[string]*slot{},
	}
}

// Start makes the stream and the lease bucket if they are not there, takes
// this instance's share of the ledgers and returns when each is open, or with
// the first *DamageError; nothing is kept open then. It is called once.
func (k *Keeper) Start(ctx context.Context) error {
	if err := k.prepare(ctx); err != nil {
		return err
	}
	if err := k.firstRenewal(ctx); err != nil {
		return errors.Join(err, k.Stop(context.WithoutCancel(ctx)))
	}
	hints, err := k.o.Conn.Subscribe(k.hintSubject(), func(*nats.Msg) { k.wakeUp() })
	if err != nil {
		return errors.Join(err, k.Stop(context.WithoutCancel(ctx)))
	}
	k.hints = hints
	k.hint()
	working, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.working.Go(func() { k.run(working) })
	janitor := Janitor{Conn: k.o.Conn, Stream: StreamOf(k.o.Service), Locals: k.open, Slack: cmp.Or(k.o.Slack, slackAt(ctx, k.o.Conn)), Logger: k.o.Logger}
	k.working.Go(func() { janitor.Run(working) })
	if err := k.awaitOpen(ctx); err != nil {
		return errors.Join(err, k.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (k *Keeper) prepare(ctx context.Context) error {
	js, err := jetstream.New(k.o.Conn)
	if err != nil {
		return err
	}
	if k.stream, err = openStream(ctx, js, k.o); err != nil {
		return err
	}
	n, err := countOf(k.stream)
	if err != nil {
		return err
	}
	for i := range n {
		k.all = append(k.all, Name(k.o.Service, i))
	}
	k.kv, err = mesh.Bucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: LeaseBucket, Description: "Waybill: who keeps which ledger", History: 1, Replicas: cmp.Or(k.o.Replicas, defaultReplicas),
	})
	return err
}

// firstRenewal takes the leases. What another instance has just made may not be
// there yet for whom we ask.
func (k *Keeper) firstRenewal(ctx context.Context) error {
	_, err := mesh.Made(ctx, func(context.Context) (struct{}, error) { return struct{}{}, k.renew(ctx) })
	return err
}

// awaitOpen waits until each ledger that is ours now has been open.
func (k *Keeper) awaitOpen(ctx context.Context) error {
	k.mu.Lock()
	slots := slices.Collect(maps.Values(k.slots))
	k.mu.Unlock()
	for _, s := range slots {
		select {
		case <-s.first:
		case <-ctx.Done():
			_, why := k.Ready()
			return protocol.Errorf(protocol.CodeUnavailable, "the ledgers could not be opened in time: %v", why)
		}
		if _, err := s.status(); isDamage(err) {
			return err
		}
	}
	return nil
}

// run renews the leases once a beat, and at once when a ledger can be freed.
func (k *Keeper) run(ctx context.Context) {
	tick := time.NewTicker(k.o.beat())
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, k.o.Lease)
		err := k.renew(bounded)
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			k.o.Logger.Warn("leases cannot be renewed; trying again until they are", "error", err)
		}
		failing = err != nil
	}
}

// Stop closes every ledger, within ctx, and frees it for others. A further call
// waits for the first. It may be called without a Start.
func (k *Keeper) Stop(ctx context.Context) error {
	k.stop.Do(func() { k.stopErr = k.shutdown(ctx) })
	return k.stopErr
}

func (k *Keeper) shutdown(ctx context.Context) error {
	if k.hints != nil {
		_ = k.hints.Unsubscribe() // fails only with the connection gone
	}
	if k.cancel != nil {
		k.cancel()
		k.working.Wait()
	}
	k.mu.Lock()
	for name, s := range k.slots {
		s.release(ctx)
		k.leaving[name] = s
	}
	clear(k.slots)
	leaving := slices.Collect(maps.Values(k.leaving))
	k.mu.Unlock()
	for _, s := range leaving {
		<-s.done
	}
	if k.kv == nil {
		return nil
	}
	err := k.rewrite(ctx, func(t *leases) { t.leave(k.o.Instance) })
	if err == nil {
		k.hint()
	}
	return err
}

func (k *Keeper) hintSubject() string { return protocol.SubjectLeases + k.o.Service }

// hint has the others look at the record now, instead of at their next beat.
// One that is lost costs that beat.
func (k *Keeper) hint() {
	if err := k.o.Conn.Publish(k.hintSubject(), nil); err != nil {
		k.o.Logger.Debug("others could not be told of a change of leases", "error", err)
	}
}

// Owned are the ledgers this instance has the lease of, sorted.
func (k *Keeper) Owned() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.slots))
}

// open are the ledgers that are open here.
func (k *Keeper) open() []Forwarder {
	k.mu.Lock()
	defer k.mu.Unlock()
	var open []Forwarder
	for _, s := range k.slots {
		if h := s.handle(); h != nil {
			open = append(open, h)
		}
	}
	return open
}

// Alone says whether no other instance of the service is known to live.
func (k *Keeper) Alone() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.others == 0
}

// Total is the number of the service's ledgers; 0 before Start.
func (k *Keeper) Total() int { return len(k.all) }

// Holds says whether the lease of a ledger is certain to be still ours: it was
// renewed less than Lease ago, by the monotonic clock, and not given up since.
// An owner looks before it does what the log's fence cannot prevent, such as a
// delivery.
func (k *Keeper) Holds(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.slots[name] != nil && k.currentLocked()
}

func (k *Keeper) currentLocked() bool { return time.Since(k.beaten) < k.o.Lease }

// Ready says whether every ledger of the service has an owner that is known to
// live, and each of this instance's is open; if not, why.
func (k *Keeper) Ready() (ok bool, why []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.currentLocked() {
		why = append(why, fmt.Sprintf("the leases of the %s ledgers are not renewed: is NATS there, with JetStream?", k.o.Service))
	}
	for _, name := range slices.Sorted(maps.Keys(k.slots)) {
		switch open, err := k.slots[name].status(); {
		case open:
		case err != nil:
			why = append(why, fmt.Sprintf("%s is not open: %v", name, err))
		default:
			why = append(why, name+" is being opened")
		}
	}
	return len(why)+len(k.orphans) == 0, append(why, k.orphans...)
}
