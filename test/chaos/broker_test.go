package chaos_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// finishOn ends a load on RabbitMQ and lets the mesh come to rest: then every
// message is accounted for, and the broker's queues are as empty as the mesh
// says, by the broker's own count.
func finishOn(l *load, amqpURL string) {
	l.t.Helper()
	l.stop()
	l.running.Wait()
	harness.Await(l.t, "the mesh is ready", func() bool { return unready(l.t, l.mesh) == "" })
	queues := l.mesh.AwaitRest(l.execution, harness.Guard)
	n := l.audit.CheckKept(l.t, l.mesh, l.execution)
	l.t.Logf("%d messages, %d deliveries", n, l.audit.Runs())
	conn, err := amqp.Dial(amqpURL)
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, q := range queues {
		name := "queue:" + l.execution + ":" + q.Route
		letters := map[string]bool{}
		for _, letter := range l.mesh.Dead(q.Queue) {
			letters[fmt.Sprint(letter.MessageID, letter.Generation)] = true
		}
		for place, want := range map[string]int{name: 0, name + ".dlq": len(letters)} {
			if at, err := ch.QueueDeclarePassive(place, true, false, false, false, nil); err != nil || at.Messages != want {
				l.t.Errorf("%s holds %d messages, want %d (%v)", place, at.Messages, want, err)
			}
		}
	}
}

// A link that is cut, half open or slow loses nothing either.
func TestFailingLinkToRabbitMQ(t *testing.T) { //nolint:tparallel // one fault after the other
	t.Parallel()
	r := live.SharedRabbitMQ(t)
	at := r.VirtualHost(t)
	link := harness.NewLink(t, r.Address())
	mesh := harness.Start(t, harness.OnRabbitMQ(t, strings.Replace(at, r.Address(), link.Address(), 1))...)
	shows := func(*load) {
		harness.Await(t, "the failing link shows in /readyz", func() bool { return strings.Contains(unready(t, mesh), "rabbitmq") })
	}
	for _, c := range []struct {
		name  string
		fail  func()
		until func(*load)
	}{
		{"cut", link.Cut, shows},
		{"half-open", link.HalfOpen, shows},
		{"slow", func() { link.Slow(50, 200) }, func(l *load) { l.progress(100) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &load{t: t, mesh: mesh.For(t), execution: c.name, decide: life, lingers: someLinger}
			l.start()
			l.progress(300)
			c.fail()
			c.until(l)
			link.Mend()
			l.progress(300)
			finishOn(l, at)
		})
	}
}

const (
	brokerKills       = 3
	brokerKillsInSoak = 20
)

// kill -9 of the broker in the middle of a publish, a settlement and a retry, each
// time of all three: at rest each answered publish is acknowledged or dead, and no
// delay was cut short. Without its broker the mesh stops when it is told to, and does
// not start.
func TestKilledRabbitMQ(t *testing.T) {
	t.Parallel()
	r := live.StartRabbitMQ(t)
	at := r.VirtualHost(t)
	through := newBusy(t, r.Address())
	args := harness.OnRabbitMQ(t, strings.Replace(at, r.Address(), through.Address(), 1))
	m := harness.Start(t, args...)
	kills := brokerKills
	if harness.Soak(t) > 0 {
		kills = brokerKillsInSoak
	}
	l := &load{t: t, mesh: m, execution: "killed", decide: life, lingers: someLinger}
	l.start()
	d := startDelays(l)
	l.progress(300)
	// RabbitMQ 3.10 forgets a quorum queue, with what it had confirmed, that was made
	// a moment before it is killed: nobody can do anything about that.
	harness.Wait(t, 5*time.Second)
	for range kills {
		l.progress(1 + rand.Int64N(1000))
		d.publish()
		harness.Receive(t, "a publish, a settlement and a retry at once", through.moment())
		r.Kill(t)
		through.forget()
		r.Start(t)
		l.progress(300)
	}
	finishOn(l, at)
	d.finish()
	stopsWithoutBroker(t, r, m, args, through.Address())
}

// stopsWithoutBroker: a mesh whose broker is away stops when it is told to, and
// one whose broker is not there does not start: it names the broker's address.
func stopsWithoutBroker(t *testing.T, r *live.RabbitMQ, m *harness.Mesh, args []string, address string) {
	t.Helper()
	r.Kill(t)
	m.Terminate()
	if code := m.Exit(harness.Guard); code != 0 {
		t.Errorf("without its broker the mesh ends with %d", code)
	}
	again := harness.Up(t, m.Data, args...)
	if code := again.Exit(harness.Guard); code == 0 || !strings.Contains(again.Output(), address) {
		t.Errorf("without its broker the mesh starts: code %d, it says\n%s", code, again.Output())
	}
}

// delays are messages that wait 1, 2 and 4 seconds between their tries.
type delays struct {
	l         *load
	execution string

	mu     sync.Mutex
	tried  map[string]map[int]time.Time // when an attempt ended, by message
	ended  map[string]bool
	wanted []string
}

const delayed = 4 // attempts

func startDelays(l *load) *delays {
	l.t.Helper()
	d := &delays{l: l, execution: l.execution + "-delays", tried: make(map[string]map[int]time.Time), ended: make(map[string]bool)}
	_, err := l.client.Work(l.t.Context(), d.execution, route(0), d.handle, client.Backoff(time.Second), client.MaxRetries(delayed))
	if err != nil {
		l.t.Fatal(err)
	}
	d.publish()
	return d
}

// publish publishes some, of which one is about to fail at each attempt.
func (d *delays) publish() {
	d.l.t.Helper()
	for range 3 {
		r, err := d.l.client.Publish(d.l.t.Context(), client.Queue(d.execution, route(0)), nil)
		if err != nil {
			d.l.t.Fatal(err)
		}
		d.wanted = append(d.wanted, r.MessageID)
	}
}

func (d *delays) handle(_ context.Context, m *client.Delivery) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before, known := d.tried[m.ID][m.Attempt-1]; known {
		if waited, delay := time.Since(before), time.Second<<m.Attempt>>2; waited < delay {
			d.l.t.Errorf("attempt %d came after %v, before %v", m.Attempt, waited, delay)
		}
	}
	if m.Attempt == delayed {
		d.ended[m.ID] = true
		return nil
	}
	if d.tried[m.ID] == nil {
		d.tried[m.ID] = make(map[int]time.Time)
	}
	if _, repeated := d.tried[m.ID][m.Attempt]; !repeated { // its copy may be on its way
		d.tried[m.ID][m.Attempt] = time.Now()
	}
	return errToldTo
}

// finish returns when all have come to their last attempt.
func (d *delays) finish() {
	d.l.t.Helper()
	d.l.mesh.AwaitRest(d.execution, harness.Guard)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range d.wanted {
		if !d.ended[id] {
			d.l.t.Errorf("message %s has not come to its last attempt: %v", id, d.tried[id])
		}
	}
}

// unready is what /readyz says while the mesh is not ready; "" when it is.
func unready(t *testing.T, m *harness.Mesh) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.HTTP+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode == http.StatusOK {
		return ""
	}
	return strconv.Itoa(answer.StatusCode) + " " + string(text)
}
