package rabbitmq_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// With `delay: mesh` a message that failed waits in the mesh before it is settled at
// the broker. A router that is killed in between has it twice: the next one knows
// that, and it is delivered once, at its next try.
func TestDelayInTheMeshOverKill(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	at := server.VirtualHost(t)
	link := harness.NewLink(t, server.Address())
	m := harness.Start(t, harness.OnRabbitMQ(t, strings.Replace(at, server.Address(), link.Address(), 1), "delay: mesh")...)
	c := m.Connect()
	attempts, fail := make(chan int, 9), make(chan struct{})
	harness.Work(t, c, "mesh", "r", func(_ context.Context, d *client.Delivery) error {
		attempts <- d.Attempt
		if d.Attempt == 1 {
			<-fail
			return errors.New("no luck")
		}
		return nil
	}, client.MaxRetries(3), client.Backoff(time.Hour))
	r := harness.Publish(t, c, client.Queue("mesh", "r"), "x")
	if n := harness.Receive(t, "the first attempt", attempts); n != 1 {
		t.Errorf("it came as attempt %d", n)
	}
	link.HalfOpen() // so that RabbitMQ hears of no settlement
	close(fail)
	waits := func() bool { return m.WaitingInMesh("/queue/mesh/r") == 1 }
	harness.Await(t, "the message to wait in the mesh", waits)
	m.Kill()
	link.Mend()
	m.Restart()
	harness.Await(t, "the original to be settled", func() bool { return unsettled(t, server, at) == 0 })
	if !waits() {
		t.Error("it does not wait any more")
	}
	if out := m.Run("retry", "now", r.MessageID); out.Code != 0 {
		t.Fatalf("it is not hurried: %s", out.Stderr)
	}
	if n := harness.Receive(t, "the second attempt", attempts); n != 2 {
		t.Errorf("it came again as attempt %d", n)
	}
	harness.Await(t, "the end", func() bool {
		q := m.Queue("mesh", "r")
		return q.Counters[protocol.CountAcknowledged] == 1 && q.Ready+q.InFlight+q.Waiting+q.Dead == 0
	})
	q := m.Queue("mesh", "r")
	for name, want := range map[string]uint64{protocol.CountPublished: 1, protocol.CountDelivered: 2, protocol.CountFailed: 1, protocol.CountRetried: 1} {
		if q.Counters[name] != want {
			t.Errorf("%s: %d, want %d", name, q.Counters[name], want)
		}
	}
	m.Balanced()
}

// unsettled is how many messages the queues of a virtual host have, delivered ones
// included; -1 while RabbitMQ does not know.
func unsettled(t *testing.T, server *live.RabbitMQ, at string) (n int) {
	t.Helper()
	var queues []struct{ Messages *int }
	server.Admin(t, http.MethodGet, "/api/queues/"+at[strings.LastIndex(at, "/")+1:], nil, &queues)
	for _, q := range queues {
		if q.Messages == nil {
			return -1
		}
		n += *q.Messages
	}
	return n
}
