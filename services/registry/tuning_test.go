package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

// tuned is an observer with a queue_config.
func tuned(config string, change ...func(*protocol.SubscriptionSpec)) protocol.Hello {
	return source(`{"topic":"news","queue_config":`+config+`}`, change...)
}

func TestQueueConfig(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	type policy struct {
		Retries     int
		Backoff     int64
		Concurrency int
		Type        protocol.QueueType
		Dead        protocol.OnDeadLetter
		Priority    uint8
		protocol.Tuning
	}
	plain := policy{Retries: 3, Backoff: 1000, Concurrency: 10}
	with := func(change func(p *policy)) policy {
		p := plain
		change(&p)
		return p
	}
	for config, want := range map[string]policy{
		`null`: plain, `{}`: plain, `{"type":"concurrent"}`: plain, `{"type":"standard","concurrency":null}`: plain,
		`{"maxRetries":7,"backoffDelayMs":9}`:    with(func(p *policy) { p.Retries, p.Backoff = 7, 9 }),
		`{"max_retries":7,"backoff_ms":9}`:       with(func(p *policy) { p.Retries, p.Backoff = 7, 9 }),
		`{"concurrency":0}`:                      with(func(p *policy) { p.Concurrency = 0 }),
		`{"concurrency":25}`:                     with(func(p *policy) { p.Concurrency = 25 }),
		`{"type":"fifo"}`:                        with(func(p *policy) { p.Type, p.Serial = protocol.TypeFIFO, true }),
		`{"type":"fifo","concurrency":0}`:        with(func(p *policy) { p.Type, p.Serial = protocol.TypeFIFO, true }),
		`{"delaySeconds":2}`:                     with(func(p *policy) { p.DelayMs = 2000 }),
		`{"delay_seconds":0.25}`:                 with(func(p *policy) { p.DelayMs = 250 }),
		`{"delaySeconds":0}`:                     plain,
		`{"visibilityTimeout":5}`:                with(func(p *policy) { p.VisibilityMs = 5000 }),
		`{"backoffType":"fixed"}`:                with(func(p *policy) { p.BackoffType = protocol.BackoffFixed }),
		`{"backoff_type":"linear"}`:              with(func(p *policy) { p.BackoffType = protocol.BackoffLinear }),
		`{"backoffType":"exponential"}`:          plain,
		`{"maxPriority":1}`:                      with(func(p *policy) { p.Priority = 1 }),
		`{"max_priority":255,"maxPriority":255}`: with(func(p *policy) { p.Priority = 255 }),
		`{"type":"fifo","message_group_field":"account","concurrency":4,"on_dead_letter":"block"}`: with(func(p *policy) {
			p.Type, p.GroupField, p.Concurrency, p.Dead = protocol.TypeFIFO, "account", 4, protocol.DeadLetterBlock
		}),
	} {
		sub := observed(t, nc, tuned(config))
		got := policy{sub.MaxRetries, sub.BackoffMs, sub.Concurrency, sub.Type, sub.OnDeadLetter, sub.MaxPriority, sub.Tuning}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", config, diff)
		}
		if kept := request[protocol.Policy](t, nc, protocol.SubjectPolicy, protocol.PolicyRequest{Queue: sub.Queue}); kept.Tuning != want.Tuning || kept.Type != want.Type {
			t.Errorf("%s is kept as %+v", config, kept)
		}
	}
	for _, config := range []string{
		`{"x":1}`, `{"maxretries":1}`, `{"Type":"fifo"}`, `[]`, `7`, `"fifo"`, `{"type":"lifo"}`, `{"type":1}`,
		`{"maxRetries":0}`, `{"maxRetries":1.5}`, `{"maxRetries":"3"}`, `{"maxRetries":1,"max_retries":2}`, `{"backoffDelayMs":0}`,
		`{"concurrency":-1}`, `{"concurrency":65537}`, `{"maxPriority":0}`, `{"maxPriority":256}`, `{"maxPriority":-1}`,
		`{"delaySeconds":-1}`, `{"delaySeconds":"1"}`, `{"delaySeconds":1e12}`, `{"visibilityTimeout":0}`, `{"visibilityTimeout":true}`,
		`{"backoffType":"none"}`, `{"messageGroupField":""}`, `{"messageGroupField":7}`, `{"type":"fifo","onDeadLetter":"explode"}`,
		`{"onDeadLetter":"block"}`, `{"concurrency":0,"x":null,"y":2}`,
	} {
		if code := refusal(t, nc, tuned(config)); code != protocol.CodeInvalidArgs {
			t.Errorf("%s: %q", config, code)
		}
	}
}

// What is said beside a queue_config beats it.
func TestQueueConfigIsBeaten(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	sub := observed(t, nc, source(`{"topic":"news","max_retries":2,"backoffDelayMs":20,"queue_config":{"maxRetries":7,"backoffDelayMs":70}}`))
	if sub.MaxRetries != 2 || sub.BackoffMs != 20 {
		t.Errorf("%+v", sub)
	}
	five := 5
	sub = observed(t, nc, protocol.Hello{WorkerID: "w1", Name: "host/w1", Subscriptions: []protocol.SubscriptionSpec{{
		Ref: "r", Kind: protocol.KindObserve, Topic: "news", MaxRetries: 2, BackoffMs: 20, Concurrency: &five, Type: protocol.TypeFIFO, MaxPriority: 2,
		QueueConfig: json.RawMessage(`{"maxRetries":7,"backoffDelayMs":70,"concurrency":70,"type":"concurrent","maxPriority":70}`),
	}}})
	if sub.MaxRetries != 2 || sub.BackoffMs != 20 || sub.Concurrency != 5 || sub.Type != protocol.TypeFIFO || sub.MaxPriority != 2 || sub.Serial {
		t.Errorf("%+v", sub)
	}
}

// What is taken and cannot have an effect is said.
func TestQueueConfigWarnings(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	for config, says := range map[string]string{
		`{"message_group_field":"a"}`:       "message_group_field",
		`{"type":"fifo","maxPriority":3}`:   "max_priority",
		`{"visibilityTimeout":30}`:          "visibilityTimeout",
		`{"visibilityTimeout":29}`:          "",
		`{"type":"fifo","concurrency":100}`: "",
	} {
		h := tuned(config)
		h.Revision = nextRevision(t, nc)
		if w := strings.Join(hello(t, nc, h).Warnings, "\n"); (w == "") != (says == "") || !strings.Contains(w, says) {
			t.Errorf("%s: %q", config, w)
		}
	}
}

// A filter is checked when it is declared, and kept as it was compiled.
func TestFiltersAreChecked(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	filtered := func(filter string) protocol.Hello {
		return source(`{"topic":"news"}`, func(s *protocol.SubscriptionSpec) { s.Filters = json.RawMessage(filter) })
	}
	for filter, want := range map[string]string{
		`{}`: "", `null`: "", `{"input.priority": {"$eq": "high"}}`: `{"input.priority":{"$eq":"high"}}`,
	} {
		if got := string(observed(t, nc, filtered(filter)).Filters); got != want {
			t.Errorf("%s is kept as %s", filter, got)
		}
	}
	for _, filter := range []string{`{"input.priority":"high"}`, `{"priority":{"$eq":1}}`, `[]`, `{"input.n":{"$regex":"x"}}`} {
		h := filtered(filter)
		h.Revision = 1 << 40
		_, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, h)
		if protocol.CodeOf(err) != protocol.CodeInvalidFilter || !strings.Contains(err.Error(), "news::observer:a") {
			t.Errorf("%s: %v", filter, err)
		}
	}
}
