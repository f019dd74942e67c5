package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	// lease is short, so that the tests of silence are.
	lease = 500 * time.Millisecond
	// calm is for tests in which nobody dies: an instance that a loaded machine keeps
	// from beating is not taken for dead.
	calm = 10 * time.Second
)

func keeperGuard(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func keeperServer(t *testing.T, dir string) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(keeperGuard(t), natsserver.Options{DataDir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(keeperGuard(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func keeperConn(t *testing.T, s *natsserver.Server) *nats.Conn {
	t.Helper()
	nc, err := mesh.Connect(keeperGuard(t), mesh.ConnectOptions{URL: s.URL(), Name: "keeper", NoBuffer: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// fakes stand for the ledgers of several instances; a ledger is open at most
// once, or the test fails.
type fakes struct {
	t     *testing.T
	lease time.Duration

	mu     sync.Mutex
	open   map[string]*fakeLedger
	refuse map[string]error
	opened map[string]int

	refused func() // if it is set, called with each refusal
}

func newFakes(t *testing.T) *fakes {
	t.Helper()
	return &fakes{t: t, lease: calm, open: map[string]*fakeLedger{}, refuse: map[string]error{}, opened: map[string]int{}}
}

type fakeLedger struct {
	f    *fakes
	name string
	done chan struct{}
	err  error
}

func (f *fakes) Open(_ context.Context, name string) (ledger.Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.refuse[name]; err != nil {
		if f.refused != nil {
			f.refused()
		}
		return nil, err
	}
	if f.open[name] != nil {
		f.t.Errorf("%s is opened while it is open elsewhere", name)
	}
	l := &fakeLedger{f: f, name: name, done: make(chan struct{})}
	f.open[name] = l
	f.opened[name]++
	return l, nil
}

// fail makes the ledger close by itself.
func (f *fakes) fail(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[name].end(err)
}

// end closes the ledger; f.mu is held.
func (l *fakeLedger) end(err error) {
	if l.f.open[l.name] != l {
		return
	}
	delete(l.f.open, l.name)
	l.err = err
	close(l.done)
}

func (l *fakeLedger) Stop(context.Context) error {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.end(nil)
	return nil
}
func (l *fakeLedger) Forward(uint64)        {}
func (l *fakeLedger) Done() <-chan struct{} { return l.done }
func (l *fakeLedger) Err() error            { return l.err }

// until waits until ok holds.
func (f *fakes) until(what string, ok func() bool) {
	f.t.Helper()
	guard := keeperGuard(f.t)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-guard.Done():
			f.t.Fatalf("never: %s", what)
		}
	}
}

func (f *fakes) timesOpened(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened[name]
}

func (f *fakes) keeper(nc *nats.Conn, instance string) *ledger.Keeper {
	return ledger.NewKeeper(ledger.KeeperOptions{
		Conn: nc, Service: "router", Ledgers: 8, Instance: instance, Lease: f.lease, Open: f.Open,
	})
}

func (f *fakes) mustStart(nc *nats.Conn, instance string) *ledger.Keeper {
	f.t.Helper()
	k := f.keeper(nc, instance)
	if err := k.Start(keeperGuard(f.t)); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := k.Stop(keeperGuard(f.t)); err != nil {
			f.t.Error(err)
		}
	})
	return k
}

func TestTheFirstInstanceKeepsAll(t *testing.T) {
	f, nc := newFakes(t), keeperConn(t, keeperServer(t, t.TempDir()))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Count(t.Context(), js, "router"); protocol.CodeOf(err) != protocol.CodeNotFound {
		t.Errorf("before the first start: %v, want NOT_FOUND", err)
	}
	k := f.mustStart(nc, "a")
	if n := len(k.Owned()); n != 8 || k.Total() != 8 || len(f.open) != 8 {
		t.Errorf("%d leases, %d open of %d", n, len(f.open), k.Total())
	}
	if ok, why := k.Ready(); !ok || !k.Holds("router-00") {
		t.Errorf("not ready: %v", why)
	}
	if n, err := ledger.Count(t.Context(), js, "router"); err != nil || n != 8 {
		t.Errorf("the stream says %d ledgers, %v", n, err)
	}
	again := ledger.NewKeeper(ledger.KeeperOptions{Conn: nc, Service: "router", Ledgers: 4, Instance: "a", Lease: calm, Open: newFakes(t).Open})
	if err := again.Start(keeperGuard(t)); err != nil || again.Total() != 8 {
		t.Errorf("the number of ledgers changed to %d, %v", again.Total(), err)
	}
	if err := again.Stop(keeperGuard(t)); err != nil {
		t.Error(err)
	}
}

func TestInstancesShareAndFollow(t *testing.T) {
	f, server := newFakes(t), keeperServer(t, t.TempDir())
	a := f.mustStart(keeperConn(t, server), "a")
	b := f.mustStart(keeperConn(t, server), "b")
	c := f.mustStart(keeperConn(t, server), "c")
	shared := func(keepers ...*ledger.Keeper) func() bool {
		return func() bool {
			share := (8 + len(keepers) - 1) / len(keepers)
			all := map[string]bool{}
			for _, k := range keepers {
				if ok, _ := k.Ready(); !ok || len(k.Owned()) > share {
					return false
				}
				for _, name := range k.Owned() {
					all[name] = true
				}
			}
			return len(all) == 8
		}
	}
	f.until("three have their share", shared(a, b, c))
	if err := b.Stop(keeperGuard(t)); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Owned()); n != 0 {
		t.Errorf("%d leases are left after Stop", n)
	}
	f.until("two have it all", shared(a, c))
}

// TestASilentInstanceIsFollowed cuts an instance's connection: it stands for a
// process that was killed, whose fakes the test closes itself.
func TestASilentInstanceIsFollowed(t *testing.T) {
	f, server := newFakes(t), keeperServer(t, t.TempDir())
	f.lease = lease
	nc := keeperConn(t, server)
	dead := f.keeper(nc, "dead")
	if err := dead.Start(keeperGuard(t)); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	cut := time.Now()
	f.mu.Lock()
	for _, l := range slices.Collect(maps.Values(f.open)) {
		delete(f.open, l.name) // it is dead, and nobody is told
	}
	f.mu.Unlock()

	k := f.mustStart(keeperConn(t, server), "alive")
	ok, why := k.Ready()
	if soon := time.Since(cut) < lease/2; soon && (ok || !strings.Contains(strings.Join(why, "\n"), "dead")) {
		t.Errorf("ready while nobody serves: %v", why)
	}
	f.until("the other took over", func() bool { ok, _ := k.Ready(); return ok && len(k.Owned()) == 8 })
	f.until("the dead one knows", func() bool { return !dead.Holds("router-00") })
	if ok, _ := dead.Ready(); ok {
		t.Error("an instance without NATS is ready")
	}
	if err := dead.Stop(keeperGuard(t)); err == nil {
		t.Error("leases were freed over a closed connection")
	}
}

func TestARestartedInstanceHasItsOwnBackAtOnce(t *testing.T) {
	f, server := newFakes(t), keeperServer(t, t.TempDir())
	nc := keeperConn(t, server)
	killed := f.keeper(nc, "a")
	if err := killed.Start(keeperGuard(t)); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	restarted := newFakes(t)
	if k := restarted.mustStart(keeperConn(t, server), "a"); len(k.Owned()) != 8 || len(restarted.open) != 8 {
		t.Errorf("%d leases, %d open at once", len(k.Owned()), len(restarted.open))
	}
	_ = killed.Stop(keeperGuard(t)) // it cannot tell NATS, which is not the point here
}

// An instance that was killed and is back finds more of its own than its share,
// since another came meanwhile: what it does not open it frees.
func TestARestartedInstanceFreesWhatIsTooMuch(t *testing.T) {
	f, server := newFakes(t), keeperServer(t, t.TempDir())
	nc := keeperConn(t, server)
	killed := newFakes(t).keeper(nc, "a")
	if err := killed.Start(keeperGuard(t)); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	other := f.mustStart(keeperConn(t, server), "b")
	again := f.mustStart(keeperConn(t, server), "a")
	f.until("both have their share", func() bool { return len(other.Owned()) == 4 && len(again.Owned()) == 4 })
	f.until("all are open", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.open) == 8
	})
	_ = killed.Stop(keeperGuard(t)) // it cannot tell NATS, which is not the point here
}

func TestALedgerThatClosesItselfIsOpenedAgain(t *testing.T) {
	f, nc := newFakes(t), keeperConn(t, keeperServer(t, t.TempDir()))
	f.lease = 2 * time.Second // two beats pass before one that is stale is tried again
	k := f.mustStart(nc, "a")
	for i, err := range []error{errors.New("disk"), ledger.ErrStale} {
		f.fail("router-03", err)
		f.until("it is open again", func() bool { ok, _ := k.Ready(); return ok && f.timesOpened("router-03") == i+2 })
	}
}

func TestADamagedLedgerFailsTheStart(t *testing.T) {
	f, nc := newFakes(t), keeperConn(t, keeperServer(t, t.TempDir()))
	f.refuse["router-05"] = fmt.Errorf("opening: %w", &ledger.DamageError{Ledger: "router-05", What: "a gap"})
	err := f.keeper(nc, "a").Start(keeperGuard(t))
	var damage *ledger.DamageError
	if !errors.As(err, &damage) || damage.Ledger != "router-05" {
		t.Fatalf("got %v, want the damage of router-05", err)
	}
	if len(f.open) != 0 {
		t.Errorf("%d ledgers were left open", len(f.open))
	}
	delete(f.refuse, "router-05")
	f.mustStart(nc, "a")
}

func TestALedgerThatDoesNotOpenIsNamed(t *testing.T) {
	f, nc := newFakes(t), keeperConn(t, keeperServer(t, t.TempDir()))
	f.refuse["router-02"] = errors.New("no space")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	times := 0
	f.refused = func() {
		times++
		if times == 2 { // the first is known by then
			cancel()
		}
	}
	err := f.keeper(nc, "a").Start(ctx)
	if protocol.CodeOf(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "router-02 is not open: no space") {
		t.Errorf("got %v, want UNAVAILABLE naming router-02 and why", err)
	}
}

func TestAStartWithoutRoomSaysSo(t *testing.T) {
	f, nc := newFakes(t), keeperConn(t, keeperServer(t, t.TempDir()))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(keeperGuard(t), jetstream.KeyValueConfig{Bucket: ledger.LeaseBucket, MaxBytes: 1}); err != nil {
		t.Fatal(err)
	}
	err = f.keeper(nc, "a").Start(keeperGuard(t))
	if protocol.CodeOf(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v, want UNAVAILABLE and why", err)
	}
}

func TestAStreamThatLostItsEndIsNotServed(t *testing.T) {
	f, nc := newFakes(t), keeperConn(t, keeperServer(t, t.TempDir()))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	k := f.mustStart(nc, "a")
	for range 3 {
		if _, err := js.Publish(t.Context(), "wb.log.router.router-00", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Stop(keeperGuard(t)); err != nil { // which notes where the stream ends
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), ledger.StreamOf("router")); err != nil {
		t.Fatal(err)
	}
	var damage *ledger.DamageError
	if err := f.keeper(nc, "a").Start(keeperGuard(t)); !errors.As(err, &damage) {
		t.Fatalf("got %v, want a DamageError", err)
	}
	accepting := ledger.NewKeeper(ledger.KeeperOptions{
		Conn: nc, Service: "router", Instance: "a", Lease: calm, Open: f.Open, AcceptLoss: true,
	})
	if err := accepting.Start(keeperGuard(t)); err != nil {
		t.Fatal(err)
	}
	if err := accepting.Stop(keeperGuard(t)); err != nil {
		t.Error(err)
	}
	f.mustStart(nc, "a") // the word was given once
}

func TestStartAndStopAgainAndAgain(t *testing.T) {
	f, nc := newFakes(t), keeperConn(t, keeperServer(t, t.TempDir()))
	for range 10 {
		k := f.keeper(nc, "a")
		if err := k.Start(keeperGuard(t)); err != nil {
			t.Fatal(err)
		}
		var stops sync.WaitGroup
		for range 3 {
			stops.Go(func() {
				if err := k.Stop(keeperGuard(t)); err != nil {
					t.Error(err)
				}
			})
		}
		stops.Wait()
		if len(f.open) != 0 {
			t.Fatalf("%d ledgers are open after Stop", len(f.open))
		}
	}
	if err := f.keeper(nc, "a").Stop(keeperGuard(t)); err != nil {
		t.Errorf("Stop without Start: %v", err)
	}
}

// What the division leaves over goes to as many instances as it is, one each:
// with four ledgers for three, nobody has none.
func TestSharesAreEven(t *testing.T) {
	f, server := newFakes(t), keeperServer(t, t.TempDir())
	var keepers []*ledger.Keeper
	for _, name := range []string{"c", "a", "e", "b", "d"} {
		keepers = append(keepers, f.mustStart(keeperConn(t, server), name))
		f.until(fmt.Sprintf("%d instances have even shares", len(keepers)), func() bool {
			least, most, sum := 8, 0, 0
			for _, k := range keepers {
				n := len(k.Owned())
				least, most, sum = min(least, n), max(most, n), sum+n
			}
			return sum == 8 && most-least <= 1
		})
	}
	if keepers[0].Alone() {
		t.Error("one of five believes it is alone")
	}
}

// An instance that leaves tells the others, and they take what it had without
// waiting for their beat, let alone for its lease.
func TestWhatAnInstanceLeavesIsTakenAtOnce(t *testing.T) {
	f, server := newFakes(t), keeperServer(t, t.TempDir())
	slow := func(name string) *ledger.Keeper {
		k := ledger.NewKeeper(ledger.KeeperOptions{
			Conn: keeperConn(t, server), Service: "router", Ledgers: 8, Instance: name, Lease: 30 * time.Minute, Open: f.Open,
		})
		if err := k.Start(keeperGuard(t)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := k.Stop(keeperGuard(t)); err != nil {
				t.Error(err)
			}
		})
		return k
	}
	a := slow("a")
	b := slow("b")
	f.until("the second has its share", func() bool { return len(a.Owned()) == 4 && len(b.Owned()) == 4 })
	if err := a.Stop(keeperGuard(t)); err != nil {
		t.Fatal(err)
	}
	f.until("the second has all", func() bool { return len(b.Owned()) == 8 })
}
