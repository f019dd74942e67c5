package chaos_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	queues := l.mesh.AwaitRest(l.execution, 2*time.Minute)
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
		for place, want := range map[string]int64{name: 0, name + ".dlq": q.Dead} {
			if at, err := ch.QueueDeclarePassive(place, true, false, false, false, nil); err != nil || int64(at.Messages) != want {
				l.t.Errorf("%s holds %d messages, want %d (%v)", place, at.Messages, want, err)
			}
		}
	}
}

// A link that is cut, half open or slow loses nothing either.
func TestFailingLinkToRabbitMQ(t *testing.T) {
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

// A mesh whose broker is away stops when it is told to, and one whose broker is
// not there does not start: it names the broker's address.
func TestRabbitMQAway(t *testing.T) {
	r := live.StartRabbitMQ(t)
	args := harness.OnRabbitMQ(t, r.VirtualHost(t))
	m := harness.Start(t, args...)
	c := m.Connect()
	handled := make(chan string, 1)
	_, err := c.Work(t.Context(), "away", "q", func(_ context.Context, d *client.Delivery) error {
		handled <- d.ID
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), client.Queue("away", "q"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	harness.Receive(t, "a delivery", handled)
	r.Kill(t)
	m.Terminate()
	if code := m.Exit(harness.Guard); code != 0 {
		t.Errorf("without its broker the mesh ends with %d", code)
	}
	again := harness.Up(t, m.Data, args...)
	if code := again.Exit(harness.Guard); code == 0 || !strings.Contains(again.Output(), r.Address()) {
		t.Errorf("without its broker the mesh starts: code %d, it says\n%s", code, again.Output())
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
