package ledger_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// flow is an owner that settles what it accepts, and tells.
type flow struct {
	*owner
	settled *atomic.Int64
	total   int64
	done    chan struct{}
	slots   chan struct{}
}

func (f *flow) Handle(events []event) {
	for _, e := range events {
		e(f.ledger)
	}
}

func (f *flow) Committed(c *ledger.Commit) {
	switch c.Kind {
	case ledger.KindAccept:
		f.ledger.Count(c.Entries[0].Queue.Name, ledger.Delivered, 1)
		f.ledger.Settle(c.Entries[0], ledger.Acknowledged, nil)
		f.ledger.Count(c.Entries[0].Queue.Name, ledger.Acknowledged, 1)
		<-f.slots
	case ledger.KindSettle:
		if f.settled.Add(1) == f.total {
			close(f.done)
		}
	}
}

// BenchmarkCommit publishes and settles messages of 128 bytes on several
// ledgers of one stream, with fsync before each answer.
func BenchmarkCommit(b *testing.B) {
	for _, ledgers := range []int{1, 16} {
		for _, queues := range []int{1, 1000} {
			b.Run(fmt.Sprintf("ledgers=%d/queues=%d", ledgers, queues), func(b *testing.B) { benchCommit(b, ledgers, queues) })
		}
	}
}

func benchCommit(b *testing.B, ledgers, queues int) {
	s := runServer(b, b.TempDir())
	nc := connect(b, s.ClientURL())
	makeStream(b, nc)
	var settled atomic.Int64
	done := make(chan struct{})
	slots := make(chan struct{}, 16384)
	var running []*ledger.Running[event]
	for i := range ledgers {
		own := &flow{owner: newOwner(), settled: &settled, total: int64(b.N), done: done, slots: slots}
		r, err := ledger.Open(b.Context(), ledger.Options{Conn: nc, Stream: streamName, Name: fmt.Sprintf("test-%02d", i)}, own)
		if err != nil {
			b.Fatal(err)
		}
		running = append(running, r)
	}
	names := make([]string, queues)
	for i := range names {
		names[i] = fmt.Sprintf("/queue/0190c0a0-0000-7000-8000-000000000000/route.%d", i)
	}
	body := make([]byte, 128)
	b.ResetTimer()
	start := time.Now()
	for i := range b.N {
		slots <- struct{}{}
		q := names[i%queues]
		running[i%queues%ledgers].Send(func(l *ledger.Ledger) {
			m := &ledger.Message{PublishedAt: 1, Body: body}
			if err := l.Accept(m, []ledger.Meta{{Queue: q, Attempt: 1}}, nil, nil); err != nil {
				b.Error(err)
			}
		})
	}
	<-done
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "jobs/s")
	b.StopTimer()
	for _, r := range running {
		if err := r.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen takes over a ledger with a million waiting messages, and tells
// what they take in memory.
func BenchmarkOpen(b *testing.B) {
	const waiting = 1_000_000
	s := runServer(b, b.TempDir(), func(o *server.Options) { o.SyncAlways = false })
	nc := connect(b, s.ClientURL())
	makeStream(b, nc)
	l := openLedger(b, nc, "test-00")
	body := make([]byte, 128)
	for n := 0; n < waiting; n += 10_000 {
		l.do(func(led *ledger.Ledger) {
			for i := range 10_000 {
				m := message("")
				m.Body = body
				if err := led.Accept(m, []ledger.Meta{{Queue: fmt.Sprint("/queue/e/", i%1000), Attempt: 1}}, nil, nil); err != nil {
					b.Error(err)
				}
			}
		})
	}
	l.until(b, "publishes", func() bool { return len(l.committed) == waiting })
	l.stop()
	l.committed, l.ledger = nil, nil
	l.Running = nil
	before := heap()
	for b.Loop() {
		l = openLedger(b, nc, "test-00")
		b.ReportMetric(float64(heap()-before)/waiting, "B/entry")
		l.stop()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkHandover decides messages in one ledger and has them handed over to
// another.
func BenchmarkHandover(b *testing.B) {
	nc := connect(b, runServer(b, b.TempDir()).ClientURL())
	makeStream(b, nc)
	from, to := openLedger(b, nc, "test-00"), openLedger(b, nc, "test-01")
	const round = 50_000
	done := 0
	for b.Loop() {
		entries := from.publish(round, "q")
		start := time.Now()
		from.do(func(l *ledger.Ledger) {
			for _, e := range entries {
				l.Decide(e, "test-01", l.Meta(e), nil)
			}
		})
		done += round
		to.until(b, "handovers", func() bool { return to.commits(ledger.KindAccept) == done })
		b.ReportMetric(round/time.Since(start).Seconds(), "handovers/s")
	}
	from.stop()
	to.stop()
}

// BenchmarkLoad reads messages that are not in memory, in order and a thousand
// at a time, as a backlog is read ahead.
func BenchmarkLoad(b *testing.B) {
	nc := connect(b, runServer(b, b.TempDir()).ClientURL())
	makeStream(b, nc)
	l := openLedger(b, nc, "test-00")
	const waiting = 100_000
	l.publish(waiting, "q")
	l.stop()
	for b.Loop() {
		l = openLedger(b, nc, "test-00", func(o *ledger.Options) { o.Bodies = ledger.NewBodies(16 << 20) })
		var entries []*ledger.Entry
		l.do(func(led *ledger.Ledger) {
			for e := range led.Entries() {
				entries = append(entries, e)
			}
		})
		start := time.Now()
		for n := 0; n < waiting; n += 1000 {
			l.do(func(led *ledger.Ledger) { led.Load(entries[n : n+1000]...) })
			l.until(b, "loading", func() bool { return len(l.loaded) == n+1000 })
		}
		b.ReportMetric(waiting/time.Since(start).Seconds(), "loads/s")
		l.stop()
	}
}
