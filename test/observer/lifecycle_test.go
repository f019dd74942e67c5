package observer_test

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// An observer that comes back within the retention has all that was published
// meanwhile; after it, what its queue holds, and then what is published.
func TestRetention(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	inside := newDiary(t)
	dispose(t, observe(t, c, inside.handle, client.ID("a")))
	payloads := numbered("inside", 5)
	publish(t, c, 1, payloads...)
	w := observe(t, c, inside.handle, client.ID("a"))
	inside.await(5)
	inside.once(payloads...)
	dispose(t, w)

	const retention = 500
	w = observe(t, c, inside.handle, client.ID("a"), client.Concurrency(0))
	publish(t, c, 1, "kept")
	m.Set(settings(30000, retention))
	dispose(t, w)
	info := m.AwaitObserver(queueOf("a"), protocol.ObserverOrphan)
	if age := time.Since(info.DetachedAt); age < retention*time.Millisecond || info.Ready != 1 || info.Owner == nil {
		t.Errorf("an orphan since %v: %+v", age, info)
	}
	publish(t, c, 0, "missed")
	harness.Wait(t, 10*retention*time.Millisecond)
	after := newDiary(t)
	observe(t, c, after.handle, client.ID("a"))
	after.await(1)
	publish(t, c, 1, "again")
	after.await(2)
	balanced(t, m, queueOf("a"))
	after.once("kept", "again")
}

// The retention outlives the process.
func TestRetentionOverARestart(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	m.Set(settings(30000, 10000))
	c := m.Connect()
	d := newDiary(t)
	dispose(t, observe(t, c, d.handle, client.ID("a")))
	m.Kill()
	m.Restart()
	p := m.Connect()
	publish(t, p, 1, "x")
	m.AwaitObserver(queueOf("a"), protocol.ObserverOrphan)
	publish(t, p, 0, "y")
	m.Kill()
	m.Restart()
	if info := m.AwaitObserver(queueOf("a"), protocol.ObserverOrphan); info.Ready != 1 || info.Receiving {
		t.Errorf("after another restart: %+v", info)
	}
}

// Without a retention a queue leaves its topic with its observer, at once.
func TestNoRetention(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	m.Set(settings(30000, 0))
	c := m.Connect()
	dispose(t, observe(t, c, newDiary(t).handle, client.ID("a")))
	publish(t, c, 0, "x")
	m.AwaitObserver(queueOf("a"), protocol.ObserverOrphan)
}

// A group whose last member has left receives its topic for the retention; whoever
// fills it again has what it holds. While one member is left it goes on.
func TestAGroupEmptiedAndFilledAgain(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	clients := []*client.Client{m.Connect(), m.Connect(), m.Connect()}
	d := newDiary(t)
	group := topic + "::@g"
	a, b := observe(t, clients[0], d.handle, client.Group("g")), observe(t, clients[1], d.handle, client.Group("g"))
	sent := numbered("both", 20)
	publish(t, clients[2], 1, sent...)
	dispose(t, a)
	more := numbered("one", 20)
	publish(t, clients[2], 1, more...)
	d.await(40)
	dispose(t, b)
	m.AwaitObserver(group, protocol.ObserverRetained)
	none := numbered("none", 20)
	publish(t, clients[2], 1, none...)
	observe(t, clients[0], d.handle, client.Group("g"))
	observe(t, clients[1], d.handle, client.Group("g"))
	d.await(60)
	q := balanced(t, m, group)
	d.once(append(append(sent, more...), none...)...)
	if q.Counters[protocol.CountAcknowledged] != 60 || q.Counters[protocol.CountVanished] != 0 {
		t.Errorf("%v", q.Counters)
	}
}

// What nobody observes as is removed on an operator's word alone, with all that
// it holds.
func TestRemoval(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	m.Set(settings(30000, 0))
	c := m.Connect()
	failing := newDiary(t)
	failing.fails = errTold
	w := observe(t, c, failing.handle, client.ID("a"), client.MaxRetries(2), client.Backoff(time.Hour))
	once := observe(t, c, failing.handle, client.Group("g"), client.MaxRetries(1))
	publish(t, c, 2, "x")
	harness.Await(t, "one waits, one is dead", func() bool {
		return m.QueueNamed(queueOf("a")).Waiting == 1 && m.QueueNamed(topic+"::@g").Dead == 1
	})
	if _, err := m.RemoveObserver(queueOf("a")); protocol.CodeOf(err) != protocol.CodeConflict {
		t.Errorf("while it is observed: %v", err)
	}
	dispose(t, w)
	dispose(t, once)
	for queue, want := range map[string]protocol.ObserverRemoved{
		queueOf("a"): {Discarded: 1}, topic + "::@g": {DeadLetters: 1},
	} {
		want.Queue = queue
		if got, err := m.RemoveObserver(queue); err != nil || got != want {
			t.Errorf("removed %+v, %v", got, err)
		}
		if info, listed := m.Observer(queue); listed {
			t.Errorf("still listed: %+v", info)
		}
		if _, err := m.RemoveObserver(queue); protocol.CodeOf(err) != protocol.CodeNotFound {
			t.Errorf("again: %v", err)
		}
	}
	if _, err := m.RemoveObserver("/queue/e/r"); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("a route: %v", err)
	}
	fresh := newDiary(t)
	other := m.Connect(client.Name("another"))
	observe(t, other, fresh.handle, client.ID("a")) // the id is anybody's
	publish(t, other, 1, "new")
	fresh.await(1)
	fresh.once("new")
}
