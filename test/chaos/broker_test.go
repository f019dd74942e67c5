package chaos_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

const (
	brokerKills       = 3
	brokerKillsInSoak = 20
)

// kill -9 of RabbitMQ while messages are published, settled, retried, dead-lettered
// and redriven, all the time and all at once: each answered publish is
// acknowledged, dead or discarded in the end, consuming goes on without an
// operator, and no try is spent on the broker's death.
func TestKilledRabbitMQLosesNothing(t *testing.T) {
	r := live.StartRabbitMQ(t)
	l := &load{t: t, mesh: harness.Start(t, harness.OnRabbitMQ(t, r.VirtualHost(t))...), execution: "killed", decide: life, lingers: someLinger}
	l.start()
	kills, soak, began := 0, harness.Soak(t), time.Now()
	for kills < brokerKills || soak > 0 && (kills < brokerKillsInSoak || time.Since(began) < soak) {
		l.progress(200 + rand.Int64N(500))
		r.Kill(t)
		harness.Await(t, "the loss shows in /readyz", func() bool { return strings.Contains(unready(t, l.mesh), "rabbitmq") })
		r.Start(t)
		kills++
	}
	l.progress(500)
	harness.Await(t, "the mesh is ready again", func() bool { return unready(t, l.mesh) == "" })
	l.finish()
	t.Logf("%d kills", kills)
}

// A link that is cut, half open or slow loses nothing either.
func TestFailingLinkToRabbitMQ(t *testing.T) {
	r := live.SharedRabbitMQ(t)
	amqp := r.VirtualHost(t)
	link := harness.NewLink(t, r.Address())
	through := strings.Replace(amqp, r.Address(), link.Address(), 1)
	l := &load{t: t, mesh: harness.Start(t, harness.OnRabbitMQ(t, through)...), execution: "linked", decide: life, lingers: someLinger}
	l.start()
	for name, fail := range map[string]func(){
		"cut":       link.Cut,
		"half open": link.HalfOpen,
		"slow":      func() { link.Slow(50, 200) },
	} {
		l.progress(300)
		fail()
		if name == "slow" {
			l.progress(100)
		} else {
			harness.Await(t, "the "+name+" link shows in /readyz", func() bool { return strings.Contains(unready(t, l.mesh), "rabbitmq") })
		}
		link.Mend()
		l.progress(300)
	}
	l.finish()
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
