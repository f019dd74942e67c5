package trace_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// plain publishes to the route step of an execution, and works it, with a NATS
// client alone.
type plain struct {
	nc         *nats.Conn
	execution  string
	backoff    time.Duration
	worker     string
	revision   uint64
	deliver    string
	deliveries chan *nats.Msg
}

func startPlain(t *testing.T, m *harness.Mesh, execution string) *plain {
	t.Helper()
	nc, err := nats.Connect(m.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	p := &plain{nc: nc, execution: execution, backoff: 10 * time.Millisecond, worker: nuid.Next(), deliveries: make(chan *nats.Msg, 16)}
	none := func(msg *nats.Msg) { _ = msg.Respond([]byte("{}")) }
	for _, verb := range []string{"probe", "claims"} {
		if _, err := nc.Subscribe("wb.v1.worker."+p.worker+"."+verb, none); err != nil {
			t.Fatal(err)
		}
	}
	p.hello(t)
	alive, stop := time.NewTicker(protocol.KeepaliveInterval), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-alive.C:
				_ = nc.Publish("wb.v1.keepalive."+p.worker, []byte(`{"revision": 1}`))
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended; alive.Stop() })
	return p
}

// hello declares the worker, again after a restart, and subscribes to what it is
// given.
func (p *plain) hello(t *testing.T) {
	t.Helper()
	p.revision++
	hello := map[string]any{
		"worker_id": p.worker, "name": "plain", "revision": p.revision,
		"subscriptions": []map[string]any{{
			"ref": "a", "execution": p.execution, "route": "step", "max_retries": 3, "backoff_ms": p.backoff.Milliseconds(),
		}},
	}
	body, err := json.Marshal(hello)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Subscriptions []struct {
			Deliver string `json:"deliver"`
		} `json:"subscriptions"`
	}
	harness.Await(t, "the registry takes the worker", func() bool {
		reply, err := p.nc.Request("wb.v1.registry.hello", body, harness.Guard)
		return err == nil && json.Unmarshal(reply.Data, &answer) == nil && len(answer.Subscriptions) == 1
	})
	subject := answer.Subscriptions[0].Deliver
	if subject == p.deliver {
		return
	}
	p.deliver = subject
	if _, err := p.nc.ChanSubscribe(subject, p.deliveries); err != nil {
		t.Fatal(err)
	}
	if err := p.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (p *plain) publish(t *testing.T, headers nats.Header) {
	t.Helper()
	msg := &nats.Msg{Subject: protocol.PublishQueueSubject(p.execution, "step"), Header: headers, Data: []byte("hello")}
	answer, err := p.nc.RequestMsg(msg, harness.Guard)
	if err != nil {
		t.Fatal(err)
	}
	var ack protocol.PublishAck
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.MessageID == "" {
		t.Fatalf("the publish was answered %s", answer.Data)
	}
}

func (p *plain) delivery(t *testing.T) *nats.Msg {
	t.Helper()
	return harness.Receive(t, "a delivery", p.deliveries)
}

func (p *plain) answer(t *testing.T, d *nats.Msg, what protocol.Outcome) {
	t.Helper()
	if err := d.RespondMsg(&nats.Msg{Header: nats.Header{protocol.HeaderOutcome: {string(what)}}}); err != nil {
		t.Fatal(err)
	}
}
