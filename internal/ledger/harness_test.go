package ledger_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// guard is how long a test waits for what must come.
const guard = 3 * time.Minute

// runServer starts a real nats-server on dir, which it stops at the test's end.
func runServer(t testing.TB, dir string, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, SyncAlways: true, MaxPayload: 8 << 20}
	for _, f := range change {
		f(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { stopServer(s) })
	if !s.ReadyForConnections(guard) {
		t.Fatal("the server is not ready")
	}
	return s
}

func stopServer(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// connect makes a connection of the ledger's own kind.
func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// makeStream makes the stream that the tests' ledgers lie on.
func makeStream(t testing.TB, nc *nats.Conn) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"wb.log.test.*"}, AllowDirect: true, DenyDelete: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const streamName = "WAYBILL_TEST"

// owner is the tests' Owner: its events are functions, run with the ledger.
type owner struct {
	mu        sync.Mutex
	ledger    *ledger.Ledger
	committed []ledger.Commit
	closed    bool
	closeErr  error
	closeTags []any
	loaded    []loadedMessage
	refuse    error
	changed   chan struct{} // a signal after each change
}

type loadedMessage struct {
	entry   *ledger.Entry
	message *ledger.Message
	meta    ledger.Meta
	err     error
}

type event func(l *ledger.Ledger)

func newOwner() *owner { return &owner{changed: make(chan struct{}, 1)} }

func (o *owner) signal() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *owner) Opened(l *ledger.Ledger) { o.ledger = l }

func (o *owner) Handle(events []event) {
	for _, e := range events {
		e(o.ledger)
	}
}

func (o *owner) Committed(c *ledger.Commit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := *c
	k.Entries = append([]*ledger.Entry(nil), c.Entries...)
	o.committed = append(o.committed, k)
	o.signal()
}

func (o *owner) Loaded(e *ledger.Entry, m *ledger.Message, meta ledger.Meta, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loaded = append(o.loaded, loadedMessage{e, m, meta, err})
	o.signal()
}

func (o *owner) Incoming(*ledger.Message, *ledger.Meta) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refuse
}

func (o *owner) Tick(time.Time) time.Time { return time.Time{} }

func (o *owner) Closed(err error, tags []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.closeErr, o.closeTags = true, err, tags
	o.signal()
}

// until waits for a condition of the owner's.
func (o *owner) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(guard)
	defer deadline.Stop()
	for {
		o.mu.Lock()
		ok := cond()
		o.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-o.changed:
		case <-deadline.C:
			t.Fatalf("waiting for %s", what)
		}
	}
}

// commits is how many records of a kind were reported.
func (o *owner) commits(k ledger.Kind) (n int) {
	for i := range o.committed {
		if o.committed[i].Kind == k {
			n++
		}
	}
	return n
}

// live is a ledger being run by a test.
type live struct {
	*ledger.Running[event]
	*owner
	t testing.TB
}

func openLedger(t testing.TB, nc *nats.Conn, name string, change ...func(*ledger.Options)) *live {
	t.Helper()
	l, err := tryOpen(t, nc, name, change...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tryOpen(t testing.TB, nc *nats.Conn, name string, change ...func(*ledger.Options)) (*live, error) {
	t.Helper()
	o := ledger.Options{Conn: nc, Stream: streamName, Name: name, Owner: "test", Logger: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	for _, f := range change {
		f(&o)
	}
	own := newOwner()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	r, err := ledger.Open(ctx, o, own)
	if err != nil {
		return nil, err
	}
	l := &live{r, own, t}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.Stop(ctx)
	})
	return l, nil
}

type testLog struct{ t testing.TB }

func (w testLog) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// do runs f in the ledger's goroutine and waits for it.
func (l *live) do(f func(*ledger.Ledger)) {
	l.t.Helper()
	done := make(chan struct{})
	if !l.Send(func(led *ledger.Ledger) { f(led); close(done) }) {
		l.t.Fatal("the ledger is closed")
	}
	select {
	case <-done:
	case <-l.Done():
		l.t.Fatalf("the ledger closed: %v", l.Err())
	}
}

func (l *live) stop() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		l.t.Fatal(err)
	}
}

func message(body string) *ledger.Message {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err)
	}
	return &ledger.Message{ID: id, PublishedAt: 1, Headers: map[string][]string{"k": {"v"}}, Body: []byte(body)}
}

// publish stores n messages and returns their entries.
func (l *live) publish(n int, queue string) []*ledger.Entry {
	l.t.Helper()
	var before int
	l.do(func(led *ledger.Ledger) {
		l.mu.Lock()
		before = l.commits(ledger.KindAccept)
		l.mu.Unlock()
		for i := range n {
			if err := led.Accept(message(fmt.Sprintf("%s %d", queue, i)), []ledger.Meta{{Queue: queue, Attempt: 1}}, nil, i); err != nil {
				l.t.Error(err)
			}
		}
	})
	l.until(l.t, "publishes", func() bool { return l.commits(ledger.KindAccept) == before+n })
	var entries []*ledger.Entry
	for _, c := range l.committed {
		if c.Kind == ledger.KindAccept {
			entries = append(entries, c.Entries...)
		}
	}
	return entries[len(entries)-n:]
}
