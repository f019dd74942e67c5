package sdk_test

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// What an observer has of its topic, and when, as it is declared.
func TestTuningIsDeclared(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	declare := func(n int, opts ...client.WorkOption) protocol.SubscriptionSpec {
		t.Helper()
		if _, err := c.Observe(t.Context(), "news", done, opts...); err != nil {
			t.Fatal(err)
		}
		return s.declared(n)
	}
	if spec := declare(1, client.Filter(` {} `), client.FirstDelay(0)); spec.Filters != nil || spec.QueueConfig != nil {
		t.Errorf("nothing is declared as %s, %s", spec.Filters, spec.QueueConfig)
	}
	spec := declare(2, client.Filter(`{"input.n": {"$gt": 5}}`), client.Serial())
	if string(spec.Filters) != `{"input.n":{"$gt":5}}` || spec.Type != protocol.TypeFIFO || string(spec.QueueConfig) != `{"type":"fifo"}` {
		t.Errorf("declared: %+v", spec)
	}
	spec = declare(3, client.GroupField("account"), client.BackoffGrows(protocol.BackoffLinear), client.FirstDelay(1500*time.Millisecond), client.Visibility(2*time.Second))
	if want := `{"message_group_field":"account","backoff_type":"linear","delay_seconds":1.5,"visibility_timeout":2}`; spec.Type != protocol.TypeFIFO || string(spec.QueueConfig) != want {
		t.Errorf("declared: %s, %+v", spec.QueueConfig, spec)
	}
}

func TestTuningThatCannotBe(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	for what, opt := range map[string]client.WorkOption{
		"backoff": client.BackoffGrows("wild"), "delay": client.FirstDelay(-1), "visibility": client.Visibility(0), "field": client.GroupField(""),
	} {
		if _, err := c.Observe(t.Context(), "t", done, opt); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.Observe(t.Context(), "t", done, client.Filter(`{"n":1}`)); protocol.CodeOf(err) != protocol.CodeInvalidFilter {
		t.Errorf("filter: %v", err)
	}
	_, work := c.Work(t.Context(), "e", "r", done, client.Filter(`{"input":{"$eq":1}}`))
	_, listen := c.Listen(t.Context(), "t", done, client.Serial())
	for what, err := range map[string]error{"work": work, "listen": listen} {
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
			t.Errorf("%s: %v", what, err)
		}
	}
}
