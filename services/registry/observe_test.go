package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

// source is a hello with an observer in the shape of a function with arguments.
func source(args string, change ...func(*protocol.SubscriptionSpec)) protocol.Hello {
	spec := protocol.SubscriptionSpec{Ref: "r", FunctionID: protocol.FunctionOnMessage, Args: json.RawMessage(args), ObserverID: "a"}
	for _, f := range change {
		f(&spec)
	}
	return protocol.Hello{WorkerID: "w1", Name: "host/w1", Revision: 1, Subscriptions: []protocol.SubscriptionSpec{spec}}
}

func observed(t *testing.T, nc *nats.Conn, h protocol.Hello) protocol.Subscription {
	t.Helper()
	h.Revision = nextRevision(t, nc)
	if r := hello(t, nc, h); len(r.Subscriptions) != 1 {
		t.Fatalf("%+v", r)
	}
	return workers(t, nc)[0].Subscriptions[0]
}

func nextRevision(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	if all := workers(t, nc); len(all) > 0 {
		return all[0].Revision + 1
	}
	return 1
}

func refusal(t *testing.T, nc *nats.Conn, h protocol.Hello) protocol.Code {
	t.Helper()
	h.Revision = 1 << 40
	_, err := mesh.Request[protocol.Registered](meshtest.Context(t), nc, protocol.SubjectHello, h)
	return protocol.CodeOf(err)
}

func TestArgumentsOfOnMessage(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	for args, want := range map[string]protocol.Subscription{
		`{"topic":"news"}`:              {Queue: "news::observer:a", MaxRetries: 3, BackoffMs: 1000},
		`{"queue":"news","group":null}`: {Queue: "news::observer:a", MaxRetries: 3, BackoffMs: 1000},
		`{"topic":"news","queue": "news","max_retries":1,"backoff_ms":50}`:     {Queue: "news::observer:a", MaxRetries: 1, BackoffMs: 50},
		`{"topic":"/topic/news","maxRetries":7,"backoffDelayMs":9}`:            {Queue: "news::observer:a", MaxRetries: 7, BackoffMs: 9},
		`{"topic":"news","group":"g","max_retries":2,"maxRetries":2}`:          {Queue: "news::@g", MaxRetries: 2, BackoffMs: 1000},
		`{"topic":"orders.created","backoff_ms":9007199254,"queue_config":{}}`: {Queue: "orders.created::observer:a", MaxRetries: 3, BackoffMs: 9007199254},
	} {
		got := observed(t, nc, source(args))
		if got.Kind != protocol.KindObserve || got.Queue != want.Queue || got.MaxRetries != want.MaxRetries || got.BackoffMs != want.BackoffMs ||
			got.TimeoutMs != protocol.DefaultObserverTimeoutMs || got.Concurrency != protocol.DefaultConcurrency {
			t.Errorf("%s is %+v", args, got)
		}
	}
	for _, args := range []string{
		``, `null`, `[]`, `"news"`, `{}`, `{"topic":""}`, `{"topic":"  "}`, `{"topic":null}`, `{"topic":7}`, `{"queue":" \t"}`,
		`{"topic":"news","x":1}`, `{"Topic":"news"}`, `{"topic":"news","filters":{}}`, `{"topic":"a","queue":"b"}`,
		`{"topic":"news","max_retries":0}`, `{"topic":"news","max_retries":-1}`, `{"topic":"news","max_retries":"3"}`,
		`{"topic":"news","max_retries":1.5}`, `{"topic":"news","max_retries":1000001}`, `{"topic":"news","max_retries":1,"maxRetries":2}`,
		`{"topic":"news","max_retries":99999999999999999999}`, `{"topic":"news","backoff_ms":0}`, `{"topic":"news","backoffDelayMs":[]}`,
		`{"topic":"news","group":7}`,
	} {
		if code := refusal(t, nc, source(args)); code != protocol.CodeInvalidArgs {
			t.Errorf("%s: %s", args, code)
		}
	}
	for _, args := range []string{`{"topic":"a b"}`, `{"topic":"a.>"}`, `{"topic":"news","group":""}`, `{"topic":"news","group":"a*"}`} {
		if code := refusal(t, nc, source(args)); code != protocol.CodeInvalidName {
			t.Errorf("%s: %s", args, code)
		}
	}
}

// What a subscription says twice, or for another kind, is refused.
func TestSourcesThatContradictThemselves(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	const args = `{"topic":"news"}`
	hello(t, nc, protocol.Hello{WorkerID: "w9", Name: "w9", Revision: 1, Functions: []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: "x", ID: "orders::created"}}}})
	for what, refused := range map[string]struct {
		change func(*protocol.SubscriptionSpec)
		code   protocol.Code
	}{
		"kind":             {func(s *protocol.SubscriptionSpec) { s.Kind = protocol.KindListen }, protocol.CodeInvalidArgs},
		"topic":            {func(s *protocol.SubscriptionSpec) { s.Topic = "news" }, protocol.CodeInvalidArgs},
		"route":            {func(s *protocol.SubscriptionSpec) { s.Route = "r" }, protocol.CodeInvalidArgs},
		"max_retries":      {func(s *protocol.SubscriptionSpec) { s.MaxRetries = 3 }, protocol.CodeInvalidArgs},
		"queue_config":     {func(s *protocol.SubscriptionSpec) { s.QueueConfig = []byte(`{}`) }, protocol.CodeInvalidArgs},
		"no function":      {func(s *protocol.SubscriptionSpec) { s.FunctionID = "" }, protocol.CodeInvalidArgs},
		"unknown function": {func(s *protocol.SubscriptionSpec) { s.FunctionID = "queue::on-massage" }, protocol.CodeFunctionNotFound},
		"other function":   {func(s *protocol.SubscriptionSpec) { s.FunctionID = "orders::created" }, protocol.CodeUnsupported},
		"no topic": {func(s *protocol.SubscriptionSpec) {
			*s = protocol.SubscriptionSpec{Ref: "r", Kind: protocol.KindObserve, Topic: " "}
		}, protocol.CodeInvalidArgs},
		"a queue's target": {func(s *protocol.SubscriptionSpec) {
			*s = protocol.SubscriptionSpec{Ref: "r", Execution: execution, Route: "r", Target: &protocol.FunctionSpec{ID: "f"}}
		}, protocol.CodeInvalidArgs},
		"a queue's filters": {func(s *protocol.SubscriptionSpec) {
			*s = protocol.SubscriptionSpec{Ref: "r", Execution: execution, Route: "r", Filters: []byte(`{}`)}
		}, protocol.CodeInvalidArgs},
		"a target's name": {func(s *protocol.SubscriptionSpec) { s.Target = &protocol.FunctionSpec{ID: "a b"} }, protocol.CodeInvalidName},
		"a target that is the mesh's": {func(s *protocol.SubscriptionSpec) {
			s.Target = &protocol.FunctionSpec{ID: protocol.FunctionOnMessage}
		}, protocol.CodeForbidden},
	} {
		if code := refusal(t, nc, source(args, refused.change)); code != refused.code {
			t.Errorf("%s: %s", what, code)
		}
	}
	h := source(args)
	h.Namespace = "a.b"
	if code := refusal(t, nc, h); code != protocol.CodeInvalidName {
		t.Errorf("namespace: %s", code)
	}
}

// Messages come from publishes only: nobody calls the function, or serves it.
func TestOnMessageIsPrivate(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	nc := meshtest.Connect(t, server)
	for _, namespace := range []string{"default", "mine"} {
		_, err := mesh.Request[protocol.Empty](meshtest.Context(t), nc, protocol.FunctionSubject(namespace, protocol.FunctionOnMessage), map[string]int{})
		if protocol.CodeOf(err) != protocol.CodeForbidden {
			t.Errorf("called in %s: %v", namespace, err)
		}
	}
	h := protocol.Hello{WorkerID: "w1", Name: "w1", Functions: []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: "mine", ID: protocol.FunctionOnMessage}}}}
	if code := refusal(t, nc, h); code != protocol.CodeForbidden {
		t.Errorf("served: %s", code)
	}
}

// An observer is active while its worker serves the function it is for.
func TestTargets(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{})
	lane := mustLanes(t, server)
	nc := meshtest.Connect(t, server)
	h := source(`{"topic":"news"}`, func(s *protocol.SubscriptionSpec) { s.Target = &protocol.FunctionSpec{ID: "orders::process"} })
	h.Namespace = "mine"
	r := hello(t, nc, h)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], string(protocol.CodeObserverNotActive)) || !strings.Contains(r.Warnings[0], "orders::process") {
		t.Errorf("warnings: %q", r.Warnings)
	}
	if w, _ := lane.last(); !w.Subscriptions[0].Inactive || !w.Subscriptions[0].Draining {
		t.Errorf("before its function is served: %+v", w)
	}
	h.Revision, h.Functions = 2, []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: "default", ID: "orders::process"}}}
	hello(t, nc, h)
	if w, _ := lane.last(); !w.Subscriptions[0].Inactive {
		t.Errorf("with the function of another namespace: %+v", w)
	}
	h.Revision, h.Functions = 3, []protocol.DeclaredFunction{{FunctionSpec: protocol.FunctionSpec{Namespace: "mine", ID: "orders::process"}}}
	if r := hello(t, nc, h); len(r.Warnings) > 0 {
		t.Errorf("warnings: %q", r.Warnings)
	}
	w, _ := lane.last()
	if sub := w.Subscriptions[0]; sub.Inactive || sub.Draining || sub.Target == nil || sub.Target.Namespace != "mine" {
		t.Errorf("with its function: %+v", sub)
	}
	all := request[protocol.SubscriptionsPage](t, nc, protocol.SubjectSubscription, protocol.SubscriptionsRequest{}).Subscriptions
	if w.Namespace != "mine" || len(all) != 1 || all[0].Namespace != "mine" {
		t.Errorf("namespace: %+v, %+v", w, all)
	}
}
