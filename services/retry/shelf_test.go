package retry

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/books/bookstest"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"

	"github.com/nats-io/nats.go/jetstream"
)

// clock is one that a test sets.
type clock struct{ book *books.Book[*shelf] }

// at has the shelf look at its messages at a time, and returns how many are
// left and when it wants to look again.
func (c clock) at(t *testing.T, now time.Time) (left int, next time.Duration) {
	t.Helper()
	type answer struct {
		left int
		next time.Time
	}
	a, err := books.Ask(meshtest.Context(t), c.book, func(s *shelf) answer {
		next := s.Tick(now)
		return answer{len(s.near) + len(s.far), next}
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.left, a.next.Sub(now)
}

// TestClockThatJumps has a shelf whose own clock stands still, so that only the
// test's times count.
func TestClockThatJumps(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(2)
	ctx := meshtest.Context(t)
	start := time.Now()

	conn, err := mesh.Connect(ctx, mesh.ConnectOptions{URL: m.URL, NoBuffer: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	var lanes books.Lanes
	if err := lanes.Learn(ctx, js); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "WAYBILL_RETRY", Subjects: []string{"wb.log.retry.*"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	var shelves books.Books[*shelf]
	book, err := shelves.Open(ctx, ledger.Options{
		Conn: conn, Stream: "WAYBILL_RETRY", Name: "retry-00", Now: func() time.Time { return start },
	}, newShelf(&lanes, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), meshtest.Patience)
		defer cancel()
		if err := book.Stop(ctx); err != nil {
			t.Error(err)
		}
	})

	m.Hand(bookstest.Parcel{
		Dest:    "retry-00",
		Message: bookstest.Message(nil, nil),
		Meta:    ledger.Meta{Queue: "/queue/e/r", Attempt: 2, Due: start.Add(time.Minute).UnixNano()},
	})
	for _, step := range []struct {
		name      string
		now, next time.Duration
		left      int
	}{
		{"long before: looks again soon, in case the clock is set", 0, time.Second, 1},
		{"just before: looks when it is due", time.Minute - time.Millisecond, time.Millisecond, 1},
		{"an hour back: waits on", -time.Hour, time.Second, 1},
		{"just before again", time.Minute - 1, 1, 1},
	} {
		left, next := clock{book}.at(t, start.Add(step.now))
		if left != step.left || next != step.next {
			t.Errorf("%s: %d left, next look in %v; want %d and %v", step.name, left, next, step.left, step.next)
		}
	}
	if left, _ := (clock{book}).at(t, start.Add(time.Minute)); left != 0 {
		t.Error("it is due, and still there")
	}
	m.Await(1)
}
