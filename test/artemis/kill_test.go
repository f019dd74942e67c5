package artemis_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestDelays: each message comes back after its own delay and never before, a short
// one passes a long one, and a broker that is killed meanwhile changes nothing.
func TestDelays(t *testing.T) {
	t.Parallel()
	server := live.StartArtemis(t)
	p := on(t, server, server.URL())
	deliveries, _ := p.work("delays", "tasks", client.MaxRetries(9), client.Backoff(time.Second))
	failed, attempts := map[string]time.Time{}, map[string]int{}
	next := func(end error) string {
		t.Helper()
		d := harness.Receive(t, "a message", deliveries)
		data := string(d.Data)
		if d.Attempt != attempts[data] { // else the broker was killed before it was settled
			attempts[data]++
		}
		if d.Attempt != attempts[data] {
			t.Errorf("%s comes as attempt %d, want %d", data, d.Attempt, attempts[data])
		}
		delay := time.Second << max(d.Attempt-2, 0)
		if waited := time.Since(failed[data]); d.Attempt > 1 && waited < delay {
			t.Errorf("attempt %d of %s comes %v early", d.Attempt, data, delay-waited)
		}
		failed[data] = time.Now()
		d.End <- end
		return data
	}
	p.publish(client.Queue("delays", "tasks"), "long")
	for range 3 {
		next(errFails)
	}
	p.publish(client.Queue("delays", "tasks"), "short") // the other waits for four seconds
	const slowest = 7                                   // attempts of it, of which the last waits for 32 s
	for shorts := 0; shorts < 2; {
		if next(errFails) == "short" {
			shorts++
		} else if attempts["long"] == slowest { // else it waits for twice as long now, for a slow machine
			t.Fatal("the short delay does not pass the long one")
		}
	}
	longs := attempts["long"] + 1
	harness.Await(t, "both to wait with the broker, or one to be due on a slow machine", func() bool {
		return server.Queues(t)["delays/tasks"].Scheduled == 2 || len(deliveries) > 0
	})
	server.Kill(t)
	server.Start(t)
	harness.Await(t, "both to be handled", func() bool {
		for len(deliveries) > 0 {
			next(nil)
		}
		return p.mesh.Queue("delays", "tasks").Counters[protocol.CountAcknowledged] == 2
	})
	p.awaitRest("delays", "tasks", 0)
	if attempts["long"] != longs || attempts["short"] != 3 {
		t.Errorf("they were handled %v times", attempts)
	}
}

const backoff = 100 * time.Millisecond // of loads

// moments are those at which a broker is killed: just after it was sent a frame that
// a client wants to be sure of.
var moments = []struct {
	name string
	is   func(*frame.Frame) bool
}{
	{"a publish", func(f *frame.Frame) bool { return attemptSent(f) == "1" }},
	{"a settlement", func(f *frame.Frame) bool { return f.Command == frame.ACK }},
	{"a retry", func(f *frame.Frame) bool { return attemptSent(f) == "2" }},
}

// attemptSent is the attempt of the message that is sent to the queue.
func attemptSent(f *frame.Frame) string {
	if f.Command != frame.SEND || f.Header.Get(frame.Destination) != "/queue/kill/tasks" {
		return ""
	}
	return f.Header.Get(protocol.HeaderAttempt)
}

// TestKilledBroker: the broker is killed in the middle of publishes, settlements and
// retries, three times of each, while others are under way. Each message that was
// confirmed is handled in the end, or dead, and after each start messages flow within
// seconds, over as many connections as before.
func TestKilledBroker(t *testing.T) {
	t.Parallel()
	server := live.StartArtemis(t)
	tap := newTap(t, server)
	tap.forget()
	p := on(t, server, tap.url())
	l := harness.BeginLoad(t, p.mesh, "kill", backoff, client.Backoff(backoff))
	harness.Await(t, "all kinds of messages", func() bool {
		q := p.mesh.Queue("kill", "tasks")
		return q.Dead > 0 && q.Counters[protocol.CountRetried] > 0 && q.Counters[protocol.CountAcknowledged] > 10
	})
	now, _ := server.Connections(t)
	for range harness.Rounds(t, 3, 20) {
		for _, moment := range moments {
			harness.Receive(t, moment.name, tap.seen(moment.is))
			server.Kill(t)
			server.Start(t)
			began := time.Now()
			l.Progress(50)
			t.Logf("messages flow %v after the start that followed %s", time.Since(began), moment.name)
			if again, ever := server.Connections(t); ever > 2*now {
				t.Errorf("%d connections are there and %d were made after the start, %d before", again, ever, now)
			}
		}
	}
	p.finish(l)
	if ids := tap.stale(); len(ids) > 0 {
		t.Errorf("the broker should not have been sent: %v", ids)
	}
	p.noErrors()
}

// failingLink: the link to the broker is cut, falls silent and is slow. Nothing
// is lost, and there is no storm of connections and errors.
func failingLink(t *testing.T, server *live.Artemis) {
	link := harness.NewLink(t, server.Address())
	p := on(t, server, strings.Replace(server.URL(), server.Address(), link.Address(), 1))
	l := harness.BeginLoad(t, p.mesh, "link", backoff, client.Backoff(backoff))
	l.Progress(100)
	_, before := server.Connections(t)
	now, _ := server.Connections(t)
	slow := func() { link.Slow(100, 50) }
	for name, fails := range map[string]func(){"cut": link.Cut, "half open": link.HalfOpen, "slow": slow} {
		fails()
		if name == "slow" {
			l.Progress(20)
		} else {
			harness.Await(t, "the broker to be missed while the link is "+name, func() bool { return !p.mesh.Ready() })
		}
		link.Mend()
		began := time.Now()
		l.Progress(100)
		t.Logf("messages flow %v after the link was %s", time.Since(began), name)
	}
	p.finish(l)
	p.purgedAway(link)
	if _, after := server.Connections(t); after-before > 10*now {
		t.Errorf("%d connections were made, of %d at a time", after-before, now)
	}
	p.noErrors()
}

// purgedAway: an execution that is purged while its broker is away leaves nothing there
// once it is back.
func (p *place) purgedAway(link *harness.Link) {
	p.Helper()
	p.publish(client.Queue("purged", "tasks"), "x")
	link.Cut()
	harness.Await(p, "the broker to be missed", func() bool { return !p.mesh.Ready() })
	if _, err := p.mesh.Close("purged", true); err != nil {
		p.Fatal(err)
	}
	link.Mend()
	harness.Await(p, "its queue to be gone", func() bool { return p.server.Depth(p, "purged/tasks") == -1 })
}

// finish ends a load: the mesh has lost nothing, and the broker has given up nothing of
// its own.
func (p *place) finish(l *harness.Load) {
	p.Helper()
	l.Finish()
	if n := p.server.Depth(p, "DLQ"); n != 0 {
		p.Errorf("the broker has given up %d messages of its own", n)
	}
}

// A broker that cannot be reached fails the start, with its address and without its
// password.
func TestUnreachableBroker(t *testing.T) {
	t.Parallel()
	up := harness.Up(t, filepath.Join(t.TempDir(), "data"), harness.OnArtemis(t, "stomp://waybill:s3cret@127.0.0.1:1")...)
	if code := up.Exit(harness.Guard); code == 0 {
		t.Error("it exits with 0")
	}
	if out := up.Output(); !strings.Contains(out, "127.0.0.1:1") || strings.Contains(out, "s3cret") {
		t.Errorf("it says %q", out)
	}
}

// TestPolicy: what a broker does on its own does not count, or it is not used.
func TestPolicy(t *testing.T) { //nolint:tparallel // the second spoils the broker for the first
	t.Parallel()
	server := live.StartArtemis(t)
	t.Run("OwnBound", func(t *testing.T) { ownBound(t, server) })
	t.Run("Settings", func(t *testing.T) { settings(t, server) })
}

// ownBound: a message is delivered again and again, since routers lose
// their connection; it is neither given up nor at a later attempt. A soak does so
// more often than a broker allows that was not told otherwise.
func ownBound(t *testing.T, server *live.Artemis) {
	rounds := 3
	if harness.Soak(t) > 0 {
		rounds = 12
	}
	link := harness.NewProxy(t, server.Address())
	p := on(t, server, strings.Replace(server.URL(), server.Address(), link.Address(), 1))
	deliveries, _ := p.work("bound", "tasks", client.Concurrency(2*rounds)) // each handler runs on
	p.publish(client.Queue("bound", "tasks"), "x")
	for range rounds {
		harness.Receive(t, "the message", deliveries)
		link.Cut()
	}
	server.Manage(t, nil, "", "addAddressSettings(java.lang.String,java.lang.String)", "narrow/tasks", `{"maxDeliveryAttempts":1}`)
	harness.Await(t, "a queue with a bound of its own to be told of", func() bool {
		p.publish(client.Queue("narrow", "tasks"), "x")
		said := p.mesh.Process().Output()
		return strings.Contains(said, "queue=narrow/tasks") && strings.Contains(said, "max-delivery-attempts is 1")
	})
	d := harness.Receive(t, "the message", deliveries)
	if d.Attempt != 1 {
		t.Errorf("lost connections have made it attempt %d", d.Attempt)
	}
	d.End <- nil
	p.awaitRest("bound", "tasks", 0)
	if n := server.Depth(t, "DLQ"); n != 0 {
		t.Errorf("the broker has given up %d messages", n)
	}
}

// settings that would act instead of the mesh fail the start, and are named.
func settings(t *testing.T, server *live.Artemis) {
	for setting, json := range map[string]string{
		"max-delivery-attempts": `{"maxDeliveryAttempts":1}`,
		"address-full-policy":   `{"maxDeliveryAttempts":-1,"addressFullMessagePolicy":"DROP"}`,
		"redelivery-delay":      `{"maxDeliveryAttempts":-1,"redeliveryDelay":5000}`,
	} {
		server.Manage(t, nil, "", "addAddressSettings(java.lang.String,java.lang.String)", "#", json)
		up := harness.Up(t, filepath.Join(t.TempDir(), "data"), harness.OnArtemis(t, server.URL())...)
		if code := up.Exit(harness.Guard); code == 0 || !strings.Contains(up.Output(), setting) {
			t.Errorf("with %s it ends with %d and says %q", json, code, up.Output())
		}
	}
}
