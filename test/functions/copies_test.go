package functions_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// Any copy of a service answers, whoever owns what is asked for; without one a
// call fails at once.
func TestCopiesOfServices(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, map[string]int{"registry": 2, "router": 2})
	c, w := newCaller(t, m.Mesh), m.Connect()
	got := make(chan string, 32)
	tasks(t, w, "default", func(d *client.Delivery) error { got <- string(d.Data); return nil })
	for i := range 8 {
		queue := fmt.Sprint("tasks-", i)
		c.wants(protocol.FunctionDefine, fmt.Sprintf(`{"queue":%q,"config":{}}`, queue), fmt.Sprintf(`{"queue":%q,"changed":true}`, queue))
		for receipt := range 2 {
			c.wants(protocol.FunctionEnqueue, fmt.Sprintf(`{"queue":%q,"function_id":"task::do","data":%q,"messageReceiptId":"%d"}`, queue, queue, receipt),
				fmt.Sprintf(`{"messageReceiptId":"%d"}`, receipt))
			if job := harness.Receive(t, "the job", got); job != fmt.Sprintf("%q", queue) {
				t.Errorf("a job of %s is %s", queue, job)
			}
			c.wants(protocol.FunctionPublish, fmt.Sprintf(`{"topic":"topic-%d","data":1}`, i), `null`)
		}
	}

	m.Instance("registry-1").End()
	c.contains(protocol.FunctionListTopics, `{}`, `{"name":"tasks-7","broker_type":"builtin","subscriber_count":1}`)
	m.Instance("router-1").End()
	m.Instance("router-2").End()
	for _, id := range []string{protocol.FunctionEnqueue, protocol.FunctionPublish} {
		if _, err := c.raw("default", id, `{}`); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s without a router: %v", id, err)
		}
	}
	c.refused("default", protocol.FunctionListTopics, `{}`, protocol.CodeUnavailable)
	m.Instance("registry-2").End()
	for _, id := range []string{protocol.FunctionWorkersList, protocol.FunctionRedrive} {
		if _, err := c.raw("default", id, `{}`); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s without a registry: %v", id, err)
		}
	}
}
