package ledger_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// TestTheLogStaysShort has one message stay while many pass: the log is
// purged behind them all the same, and what stays can be read after a takeover.
func TestTheLogStaysShort(t *testing.T) {
	nc := connect(t, runServer(t, t.TempDir()).ClientURL())
	stream := makeStream(t, nc)
	busy, idle := openLedger(t, nc, "test-00"), openLedger(t, nc, "test-01")
	stuck := busy.publish(3, "stuck")
	busy.do(func(l *ledger.Ledger) {
		m := l.Meta(stuck[1])
		m.Attempt, m.Error = 2, "once"
		l.Restate(stuck[1], m, nil)
		l.Count("stuck", ledger.Failed, 1)
	})
	idle.publish(1, "idle")
	j := &ledger.Janitor{
		Conn: nc, Stream: streamName, Slack: 1 << 20, Every: 20 * time.Millisecond,
		Locals: func() []ledger.Forwarder { return []ledger.Forwarder{busy, idle} },
	}
	ctx, stop := context.WithCancel(t.Context())
	swept := make(chan struct{})
	go func() { j.Run(ctx); close(swept) }()

	body := string(bytes.Repeat([]byte("x"), 10_000))
	for round := range 60 {
		busy.do(func(l *ledger.Ledger) {
			for range 20 {
				if err := l.Accept(message(body), []ledger.Meta{{Queue: "q"}}, nil, nil); err != nil {
					t.Error(err)
				}
			}
		})
		busy.until(t, "publishes", func() bool { return busy.commits(ledger.KindAccept) == 3+20*(round+1) })
		busy.do(func(l *ledger.Ledger) {
			for e := range l.Entries() {
				if e.Queue.Name == "q" {
					l.Settle(e, ledger.Acknowledged, nil)
				}
			}
		})
	}
	awaitSize(t, func() uint64 {
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Bytes
	}, 2<<20)
	stop()
	<-swept
	busy.stop()
	idle.stop()

	busy, idle = openLedger(t, nc, "test-00"), openLedger(t, nc, "test-01")
	busy.do(func(l *ledger.Ledger) {
		for e := range l.Entries() {
			l.Load(e)
		}
		if c := l.Queue("q").Counters[ledger.Published]; c != 1200 {
			t.Errorf("published %d, want 1200", c)
		}
		if c := l.Queue("stuck").Counters[ledger.Failed]; c != 1 {
			t.Errorf("failed %d, want 1", c)
		}
	})
	busy.until(t, "loading", func() bool { return len(busy.loaded) == 3 })
	for i, x := range busy.loaded {
		if x.err != nil || string(x.message.Body) != fmt.Sprint("stuck ", i) {
			t.Errorf("loaded %v: %v", x.message, x.err)
		}
	}
	if m := busy.loaded[1].meta; m.Error != "once" || m.Attempt != 2 {
		t.Errorf("the meta is %+v", m)
	}
	idle.do(func(l *ledger.Ledger) {
		if n, _ := l.Live(); n != 1 {
			t.Errorf("the idle ledger has %d messages, want 1", n)
		}
	})
}

// TestAnEmptiedLogIsShortened: what is settled all at once is not kept for what
// the ledger said was live before, though it commits nothing after that.
func TestAnEmptiedLogIsShortened(t *testing.T) {
	nc := connect(t, runServer(t, t.TempDir()).ClientURL())
	stream := makeStream(t, nc)
	l := openLedger(t, nc, "test-00")
	body := string(bytes.Repeat([]byte("x"), 512<<10))
	const messages = 12
	l.do(func(l *ledger.Ledger) {
		for range messages {
			if err := l.Accept(message(body), []ledger.Meta{{Queue: "q"}}, nil, nil); err != nil {
				t.Error(err)
			}
		}
	})
	l.until(t, "publishes", func() bool { return l.commits(ledger.KindAccept) == messages })
	l.do(func(l *ledger.Ledger) {
		for e := range l.Entries() {
			l.Settle(e, ledger.Acknowledged, nil)
		}
	})
	l.until(t, "settlements", func() bool { return l.commits(ledger.KindSettle) == messages })
	j := &ledger.Janitor{
		Conn: nc, Stream: streamName, Slack: 1 << 20,
		Locals: func() []ledger.Forwarder { return []ledger.Forwarder{l} },
	}
	awaitSize(t, func() uint64 {
		if err := j.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Bytes
	}, 2<<20)
}

func awaitSize(t *testing.T, size func() uint64, limit uint64) {
	t.Helper()
	tick, deadline := time.NewTicker(20*time.Millisecond), time.NewTimer(guard)
	defer tick.Stop()
	defer deadline.Stop()
	for size() > limit {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("the log has %d bytes", size())
		}
	}
}
