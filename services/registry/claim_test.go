package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/internal/natsserver"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

func withGrace(grace time.Duration) registry.Options {
	ms := grace.Milliseconds()
	return registry.Options{Config: registry.ConfigOptions{Change: config.SettingsDocument(protocol.SettingsChange{Observers: protocol.ObserverSettingsChange{ObserverGraceMs: &ms}})}}
}

func named(worker, name, namespace string) protocol.Hello {
	h := observing(worker, "news", "a")
	h.Name, h.Namespace = name, namespace
	return h
}

// has says whether the worker's observer was taken, and else why not.
func has(t *testing.T, nc *nats.Conn, h protocol.Hello) (bool, string) {
	t.Helper()
	r := hello(t, nc, h)
	if len(r.Refused) == 0 {
		return true, ""
	}
	if r.Refused[0].Error.Code != protocol.CodeObserverIDConflict {
		t.Fatalf("%+v", r)
	}
	return false, r.Refused[0].Error.Message
}

func bye(t *testing.T, nc *nats.Conn, worker string) {
	t.Helper()
	request[protocol.Empty](t, nc, protocol.SubjectBye, protocol.Bye{WorkerID: worker})
}

// An id that was left behind is kept for the program of the same name in the
// same namespace; another is told who has it, and until when.
func TestAnIDIsKeptForWhoLeftItBehind(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	has(t, nc, named("w1", "billing", "shop"))
	bye(t, nc, "w1")
	for _, other := range []protocol.Hello{named("w2", "billing", ""), named("w3", "mail", "shop")} {
		ok, why := has(t, nc, other)
		if ok || !strings.Contains(why, "worker billing in namespace shop") || !strings.Contains(why, "until 20") {
			t.Errorf("%s of %q: %v, %s", other.Name, other.Namespace, ok, why)
		}
	}
	if ok, why := has(t, nc, named("w4", "billing", "shop")); !ok {
		t.Errorf("who left it is refused: %s", why)
	}
	if ok, why := has(t, nc, named("w5", "mail", "shop")); ok || !strings.Contains(why, "as long as it is there") {
		t.Errorf("while it is back: %v, %s", ok, why)
	}
}

func TestGraceIsASettingOfItsOwn(t *testing.T) {
	t.Parallel()
	server := meshtest.Server(t)
	mustStart(t, server, withGrace(time.Second))
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	has(t, nc, named("w1", "billing", ""))
	left := time.Now()
	bye(t, nc, "w1")
	if ok, _ := has(t, nc, named("w2", "mail", "")); ok && time.Since(left) < time.Second {
		t.Error("within the grace it is another's")
	}
	other := named("w2", "mail", "")
	meshtest.Eventually(t, "after the grace anybody may have it", func() bool {
		other.Revision++
		ok, _ := has(t, nc, other)
		return ok
	})
	if early := time.Second - time.Since(left); early > 0 {
		t.Errorf("%v before the grace was over", early)
	}
}

// What was removed, and not left behind, is free.
func TestAnIDThatIsGivenUpIsFree(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	h := named("w1", "billing", "")
	has(t, nc, h)
	h.Revision, h.Subscriptions = 2, nil
	hello(t, nc, h)
	if ok, why := has(t, nc, named("w2", "mail", "")); !ok {
		t.Errorf("after it was removed: %s", why)
	}
}

// The grace outlives the registry, and begins again when the registry does:
// nobody could come back meanwhile.
func TestGraceOutlivesTheRegistry(t *testing.T) {
	t.Parallel()
	server := meshtest.Server(t)
	r := mustStart(t, server, withGrace(2*time.Second))
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	has(t, nc, named("w1", "billing", ""))
	bye(t, nc, "w1")
	left := time.Now()
	mustStop(t, r)
	awaitUntil(t, left.Add(2*time.Second))
	back := time.Now()
	mustStart(t, server, registry.Options{})
	other := named("w2", "mail", "")
	meshtest.Eventually(t, "after another grace anybody may have it", func() bool {
		other.Revision++
		ok, _ := has(t, nc, other)
		return ok
	})
	if early := 2*time.Second - time.Since(back); early > 0 {
		t.Errorf("%v before the registry was back for a grace", early)
	}
}

// While NATS is away for longer than the grace, none ends: neither that of an id
// which was left behind, nor an observer's own.
func TestGraceBeginsAgainWhenNATSIsBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := natsserver.Start(meshtest.Context(t), natsserver.Options{DataDir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	const grace = 2 * silence
	o := withGrace(grace)
	o.Silence = silence
	mustStart(t, first, o)
	mustLanes(t, first)
	nc := meshtest.Connect(t, first)
	has(t, nc, named("w1", "billing", ""))
	live := named("w2", "mail", "")
	live.Subscriptions[0].ObserverID = "live"
	has(t, nc, live)
	bye(t, nc, "w1")
	second, back := mustRestart(t, first, dir, grace+time.Second)
	fresh := meshtest.Connect(t, second)
	meshtest.Eventually(t, "the registry is back", func() bool {
		_, err := mesh.Request[protocol.Settings](meshtest.Context(t), fresh, protocol.SubjectSettings, protocol.Empty{})
		return err == nil
	})
	other := named("w3", "other", "")
	meshtest.Eventually(t, "another has what was left behind", func() bool {
		other.Revision++
		ok, _ := has(t, fresh, other)
		return ok
	})
	meshtest.Eventually(t, "the silent one is gone", func() bool { return len(workers(t, fresh)) == 0 })
	if early := grace - time.Since(back); early > 0 {
		t.Errorf("%v before NATS was back for a grace", early)
	}
}

// A silent worker with observers is not gone within a grace of the start.
func TestObserversHaveTheirGraceAfterAStart(t *testing.T) {
	t.Parallel()
	server := meshtest.Server(t)
	const grace = 2 * silence
	o := withGrace(grace)
	o.Silence = silence
	r := mustStart(t, server, o)
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	has(t, nc, named("w1", "billing", ""))
	hello(t, nc, one("w2", execution, "r"))
	mustStop(t, r)
	next := events(t, nc)
	back := time.Now()
	mustStart(t, server, registry.Options{Silence: silence})
	for _, want := range []string{"w2", "w1"} { // w1 has observers
		if w := gone(t, next); w.ID != want {
			t.Errorf("%s is gone, want %s", w.ID, want)
		}
	}
	if listed := workers(t, nc); len(listed) != 0 {
		t.Errorf("%+v are still listed", listed)
	}
	if early := grace - time.Since(back); early > 0 {
		t.Errorf("%v before its grace was over", early)
	}
}

// awaitUntil waits for a time of day.
func awaitUntil(t *testing.T, until time.Time) {
	t.Helper()
	select {
	case <-time.After(time.Until(until)):
	case <-meshtest.Context(t).Done():
		t.Fatal("never")
	}
}

// Lanes in which nothing has changed are not asked again.
func TestOnlyLanesThatChangeAreAsked(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	lane := mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	h := observing("w1", "news", "a")
	for revision := range uint64(3) {
		h.Revision = revision + 1
		hello(t, nc, h)
		if _, n := lane.last(); n != 1 {
			t.Errorf("after hello %d lanes were asked %d times", h.Revision, n)
		}
	}
	h.Revision, h.Subscriptions[0].MaxRetries = 4, 7
	hello(t, nc, h)
	if w, n := lane.last(); n != 2 || w.Subscriptions[0].MaxRetries != 7 {
		t.Errorf("after a change lanes were asked %d times", n)
	}
	h.Revision, h.Subscriptions = 5, nil
	hello(t, nc, h)
	if w, n := lane.last(); n != 3 || len(w.Subscriptions) != 0 {
		t.Errorf("after the end lanes were asked %d times", n)
	}
}
