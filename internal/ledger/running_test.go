package ledger_test

import (
	"errors"
	"testing"

	"github.com/waybill-mq/waybill/internal/ledger"
)

func TestPublishSettleReopen(t *testing.T) {
	nc := connect(t, runServer(t, t.TempDir()).ClientURL())
	makeStream(t, nc)
	l := openLedger(t, nc, "test-00")
	entries := l.publish(10, "q")
	l.do(func(led *ledger.Ledger) {
		for _, e := range entries[:7] {
			if !led.Settle(e, ledger.Acknowledged, nil) {
				t.Error("not settled")
			}
		}
	})
	l.until(t, "settlements", func() bool { return l.commits(ledger.KindSettle) == 7 })
	l.stop()

	l = openLedger(t, nc, "test-00")
	if l.Epoch() != 2 {
		t.Errorf("epoch %d, want 2", l.Epoch())
	}
	l.do(func(led *ledger.Ledger) {
		n := 0
		for e := range led.Entries() {
			if e.Key != entries[7+n].Key {
				t.Errorf("key %d, want %d", e.Key, entries[7+n].Key)
			}
			n++
			led.Load(e)
		}
		if n != 3 {
			t.Errorf("%d entries, want 3", n)
		}
		if p := led.Queue("q").Counters[ledger.Published]; p != 10 {
			t.Errorf("published %d, want 10", p)
		}
	})
	l.until(t, "loading", func() bool { return len(l.loaded) == 3 })
	for i, x := range l.loaded {
		if x.err != nil || string(x.message.Body) != "q "+string(rune('7'+i)) || x.meta.Attempt != 1 {
			t.Errorf("loaded %+v %v", x.message, x.err)
		}
	}
}

func TestAnotherOwnerFences(t *testing.T) {
	nc := connect(t, runServer(t, t.TempDir()).ClientURL())
	makeStream(t, nc)
	a := openLedger(t, nc, "test-00")
	a.publish(3, "q")
	b := openLedger(t, nc, "test-00")
	a.Send(func(led *ledger.Ledger) {
		_ = led.Accept(message("late"), []ledger.Meta{{Queue: "q"}}, nil, "late")
	})
	<-a.Done()
	if !errors.Is(a.Err(), ledger.ErrStale) {
		t.Fatalf("the old owner ended with %v", a.Err())
	}
	b.do(func(led *ledger.Ledger) {
		if n, _ := led.Live(); n != 3 {
			t.Errorf("%d messages, want 3", n)
		}
	})
}

func TestHandover(t *testing.T) {
	nc := connect(t, runServer(t, t.TempDir()).ClientURL())
	makeStream(t, nc)
	a := openLedger(t, nc, "test-00")
	entries := a.publish(100, "q")
	a.do(func(led *ledger.Ledger) {
		for _, e := range entries {
			m := led.Meta(e)
			m.Attempt, m.Error, m.Reason = 2, "it failed", "failed"
			if !led.Decide(e, "test-01", m, nil) {
				t.Error("not decided")
			}
		}
	})
	a.until(t, "decisions", func() bool { return a.commits(ledger.KindDecide) == 100 })
	a.stop()
	// Its successor goes on with it, and the other ledger comes only now.
	a = openLedger(t, nc, "test-00")
	b := openLedger(t, nc, "test-01")
	a.until(t, "handovers", func() bool { return a.commits(ledger.KindDone) == 100 })
	b.do(func(led *ledger.Ledger) {
		n := 0
		for e := range led.Entries() {
			n++
			led.Load(e)
		}
		if n != 100 {
			t.Errorf("%d entries, want 100", n)
		}
	})
	b.until(t, "loading", func() bool { return len(b.loaded) == 100 })
	for _, x := range b.loaded {
		if x.err != nil || x.meta.Error != "it failed" || x.meta.Attempt != 2 || len(x.message.Headers) != 1 {
			t.Fatalf("loaded %+v %+v %v", x.message, x.meta, x.err)
		}
	}
}
