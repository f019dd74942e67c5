package conformance

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/artemis"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestArtemis(t *testing.T) { brokertest.Run(t, targetOnArtemis(t, false)) }

// TestArtemisDelayMesh: what failed waits in the mesh.
func TestArtemisDelayMesh(t *testing.T) { runWaiting(t, targetOnArtemis(t, true)) }

func targetOnArtemis(t *testing.T, meshDelay bool) brokertest.Target {
	t.Helper()
	a := live.SharedArtemis(t)
	// Its own means of closing connections sometimes block it, while one of them is
	// written to.
	link := harness.NewProxy(t, a.Address())
	m := startMeshOn(t, onArtemis(strings.Replace(a.URL(), a.Address(), link.Address(), 1), meshDelay), router.Limits{})
	return brokertest.Target{
		URL: m.server.URL(), Broker: artemis.Name, Capabilities: m.capabilities(t), Restart: m.restart, Undecided: m.undecided,
		Sever: func(*testing.T) { link.Cut() },
		Put: func(t *testing.T, queue string, headers map[string]any, body []byte) {
			putSTOMP(t, a.URL(), queue, headers, body)
		},
	}
}

func onArtemis(address string, meshDelay bool) func(log *slog.Logger) (broker.Remote, error) {
	return func(log *slog.Logger) (broker.Remote, error) {
		return artemis.New(artemis.Options{URL: address, MeshDelay: meshDelay, Logger: log})
	}
}

// putSTOMP publishes as a program does that knows STOMP alone.
func putSTOMP(t *testing.T, address, queue string, headers map[string]any, body []byte) {
	t.Helper()
	name, err := scope.Ledger{}.Parse(queue)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := scope.STOMP{}.Format(name)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := at.User.Password()
	conn, err := stomp.Dial("tcp", at.Host, stomp.ConnOpt.Login(at.User.Username(), password), stomp.ConnOpt.HeartBeat(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Disconnect(); err != nil {
			t.Error(err)
		}
	}()
	opts := []func(*frame.Frame) error{stomp.SendOpt.Receipt, stomp.SendOpt.Header("persistent", "true")}
	for name, value := range headers {
		if name = strings.TrimSpace(name); name != "" {
			opts = append(opts, stomp.SendOpt.Header(name, strings.ToValidUTF8(fmt.Sprint(value), "?")))
		}
	}
	if err := conn.Send(destination, "", body, opts...); err != nil {
		t.Fatal(err)
	}
}

// TestArtemisPlain: on an acceptor that takes nothing off a destination the names
// are whole. What one subscription's window does not hold is asked for by another,
// and a name that the broker has for something else is refused.
func TestArtemisPlain(t *testing.T) {
	a := live.SharedArtemis(t)
	m := startMeshOn(t, onArtemis(a.PlainURL(), false), router.Limits{})
	c, err := client.Connect(t.Context(), m.server.URL(), client.DrainWindow(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil && protocol.CodeOf(err) != protocol.CodeConflict { // it tells of the last one too
			t.Error(err)
		}
	})
	publish := func(to client.Destination, data []byte) error {
		_, err := c.Publish(t.Context(), to, data)
		return err
	}
	const large, size = 12, 300 << 10
	for range large {
		if err := publish(client.Queue("plain", "large"), bytes.Repeat([]byte{'x'}, size)); err != nil {
			t.Fatal(err)
		}
	}
	harness.Await(t, "the queue to have what was confirmed", func() bool { return a.Depth(t, "/queue/plain/large") == large })
	if q := a.Queues(t)["/queue/plain/large"]; q.RoutingType != "ANYCAST" {
		t.Errorf("the queue is %+v", q)
	}
	running, done := make(chan int, large), make(chan struct{})
	handle := func(_ context.Context, d *client.Delivery) error {
		running <- len(d.Data)
		<-done
		return nil
	}
	if _, err := c.Work(t.Context(), "plain", "large", handle, client.Concurrency(large)); err != nil {
		t.Fatal(err)
	}
	for range large {
		if n := harness.Receive(t, "all to be handled at once", running); n != size {
			t.Errorf("it has %d bytes", n)
		}
	}
	close(done)
	harness.Await(t, "the queue to be empty", func() bool { return a.Depth(t, "/queue/plain/large") == 0 })

	observed := make(chan string, 1)
	if _, err := c.Observe(t.Context(), "orders", func(_ context.Context, d *client.Delivery) error {
		observed <- string(d.Data)
		return nil
	}, client.ID("audit")); err != nil {
		t.Fatal(err)
	}
	if err := publish(client.Topic("orders"), []byte("x")); err != nil || harness.Receive(t, "the observer's copy", observed) != "x" {
		t.Errorf("publishing to a topic: %v", err)
	}
	const taken = `{"name":"/queue/plain/taken","address":"elsewhere","routing-type":"ANYCAST"}`
	a.Manage(t, nil, "", "createQueue(java.lang.String)", taken)
	if err := publish(client.Queue("plain", "taken"), nil); protocol.CodeOf(err) != protocol.CodeConflict || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("publishing to a queue whose name is taken: %v", err)
	}
}
