package broker_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// able is a broker with these capabilities and nothing else.
type able broker.Capabilities

func (able) Name() string                                    { return "able" }
func (a able) Capabilities() broker.Capabilities             { return broker.Capabilities(a) }
func (able) Durability() string                              { return "" }
func (able) Attach(*ledger.Ledger, broker.Lane) broker.Store { return nil }

// What a broker cannot do is refused by name, with what to do; each wish is
// granted by its own capability.
func TestRefusal(t *testing.T) {
	fifo := protocol.Subscription{Type: protocol.TypeFIFO, MaxRetries: 1}
	patient := protocol.Subscription{MaxRetries: 7, BackoffMs: protocol.DefaultBackoffMs}
	slow := protocol.Subscription{MaxRetries: protocol.DefaultMaxRetries, RetriesDefault: true, BackoffMs: 60_000}
	later := protocol.Subscription{MaxRetries: 1, Tuning: protocol.Tuning{DelayMs: 1000}}
	for name, c := range map[string]struct {
		asked   []broker.Wish
		needs   broker.Capabilities
		refused string
	}{
		"fifo":         {broker.WishesOf(&fifo), broker.Capabilities{FIFO: true}, "queues of the type fifo"},
		"retries":      {broker.WishesOf(&patient), broker.Capabilities{Retries: true}, "another try"},
		"backoff":      {broker.WishesOf(&slow), broker.Capabilities{Delay: broker.DelayExact}, "a delay of one's own"},
		"first delay":  {broker.WishesOf(&later), broker.Capabilities{Schedules: true}, "due later"},
		"once":         {[]broker.Wish{broker.WishOnce}, broker.Capabilities{Dedup: 1}, "stored once"},
		"dead letters": {[]broker.Wish{broker.WishDLQ}, broker.Capabilities{DeadLetters: true}, "dead letters"},
	} {
		if err := broker.Refusal(able(c.needs), c.asked...); err != nil {
			t.Errorf("%s: refused though the broker can: %v", name, err)
		}
		err := broker.Refusal(able{}, c.asked...)
		if protocol.CodeOf(err) != protocol.CodeUnsupported || !strings.Contains(err.Error(), "able") || !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	queue := broker.WishesOf(&protocol.Subscription{Queue: "/queue/e/r"})
	if err := broker.Refusal(able{TopicsOnly: true}, queue...); protocol.CodeOf(err) != protocol.CodeUnsupported || broker.Refusal(able{}, queue...) != nil {
		t.Errorf("a queue: %v", err)
	}
	plain := protocol.Subscription{MaxRetries: protocol.DefaultMaxRetries, RetriesDefault: true, BackoffMs: protocol.DefaultBackoffMs}
	if err := broker.Refusal(able{}, broker.WishesOf(&plain)...); err != nil {
		t.Errorf("a subscription that asks for nothing: %v", err)
	}
}

// Every capability has a value and says what it means, whatever it is.
func TestCapabilitiesAreExplained(t *testing.T) {
	all := broker.Capabilities{Durable: true, Retries: true, Delay: broker.DelayExact, DeadLetters: true, Waiting: true, FIFO: true, Priorities: true, Schedules: true, Dedup: 1, Resumes: true, Open: true, MaxName: 255}
	none := broker.Capabilities{TopicsOnly: true, Delay: broker.DelayNone}.List()
	for i, has := range all.List() {
		if has.Name == "" || has.Value == "" || has.Text == "" || none[i].Value == has.Value || none[i].Text == "" || none[i].Name != has.Name {
			t.Errorf("%+v, and without %+v", has, none[i])
		}
	}
}
