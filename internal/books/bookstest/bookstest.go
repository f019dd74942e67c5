// Package bookstest is what a service that holds messages in ledgers is tested
// in: a real NATS, and a stand-in for the router that hands messages over and
// takes them back.
package bookstest

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/internal/natsserver"
)

// Mesh is NATS, and a router's lanes once StartRouter was called.
type Mesh struct {
	URL  string
	Conn *nats.Conn

	t     testing.TB
	lanes books.Books[*lane]
	total int

	mu       sync.Mutex
	arrivals []Arrival
	news     chan struct{}
}

// Arrival is a message that came back to a lane.
type Arrival struct {
	At      time.Time
	Message *ledger.Message
	Meta    ledger.Meta
}

// Parcel is a message that a lane hands over, with its state from then on.
type Parcel struct {
	Dest    string
	Message *ledger.Message
	Meta    ledger.Meta
}

// Start starts NATS with its data in a directory of the test's.
func Start(t testing.TB) *Mesh {
	t.Helper()
	ctx := meshtest.Context(t)
	server, err := natsserver.Start(ctx, natsserver.Options{DataDir: t.TempDir(), Port: -1, Logger: Logger()})
	must(t, err)
	t.Cleanup(func() { stop(t, server.Stop) })
	conn, err := mesh.Connect(ctx, mesh.ConnectOptions{URL: server.URL(), Name: "test"})
	must(t, err)
	t.Cleanup(conn.Close)
	return &Mesh{URL: server.URL(), Conn: conn, t: t, news: make(chan struct{}, 1)}
}

// StartRouter opens the ledgers of a router with n lanes.
func (m *Mesh) StartRouter(n int) {
	m.t.Helper()
	ctx := meshtest.Context(m.t)
	conn, err := mesh.Connect(ctx, mesh.ConnectOptions{URL: m.URL, Name: "test-lanes", NoBuffer: true})
	must(m.t, err)
	m.t.Cleanup(conn.Close)
	keeper := ledger.NewKeeper(ledger.KeeperOptions{
		Conn: conn, Service: "router", Ledgers: n, Instance: "test",
		Open: func(ctx context.Context, name string) (ledger.Handle, error) {
			return m.lanes.Open(ctx, ledger.Options{Conn: conn, Stream: ledger.StreamOf("router"), Name: name, Owner: "test"}, newLane(m, name))
		},
	})
	must(m.t, keeper.Start(ctx))
	m.t.Cleanup(func() { stop(m.t, keeper.Stop) })
	m.total = n
}

// Hand hands parcels over and returns when their receivers have them. Each
// comes from the lane of its queue.
func (m *Mesh) Hand(parcels ...Parcel) {
	m.t.Helper()
	perLane := map[string][]Parcel{}
	for _, p := range parcels {
		name := ledger.Name("router", ledger.Of(p.Meta.Queue, m.total))
		perLane[name] = append(perLane[name], p)
	}
	for name, parcels := range perLane {
		book := m.lanes.Get(name)
		if book == nil {
			m.t.Fatalf("the lane %s is not open", name)
		}
		err, failed := books.Await(meshtest.Context(m.t), book, func(l *lane, answer func(error)) { l.hand(parcels, answer) })
		must(m.t, failed)
		must(m.t, err)
	}
}

// Await returns the first n messages that came back to the lanes, which have
// to be that many within meshtest.Patience.
func (m *Mesh) Await(n int) []Arrival {
	m.t.Helper()
	ctx := meshtest.Context(m.t)
	for {
		arrivals := m.Arrivals()
		if len(arrivals) >= n {
			return arrivals[:n]
		}
		select {
		case <-m.news:
		case <-ctx.Done():
			m.t.Fatalf("%d messages came back to the lanes, want %d", len(arrivals), n)
		}
	}
}

// Arrivals are the messages that have come back to the lanes.
func (m *Mesh) Arrivals() []Arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clip(m.arrivals)
}

func (m *Mesh) arrived(a Arrival) {
	m.mu.Lock()
	m.arrivals = append(m.arrivals, a)
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// Message makes a message with a new id.
func Message(body []byte, headers map[string][]string) *ledger.Message {
	return &ledger.Message{ID: uuid.Must(uuid.NewV7()), PublishedAt: time.Now().UnixNano(), Headers: headers, Body: body}
}

// Logger writes warnings to the standard error, which go test shows when a test
// fails.
func Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func stop(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), meshtest.Patience)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Error(err)
	}
}
