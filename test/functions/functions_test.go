// Package functions_test calls the mesh's own functions as any program does: a
// NATS request with a JSON object.
package functions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// caller calls functions of a mesh.
type caller struct {
	t  testing.TB
	nc *nats.Conn
}

func newCaller(t testing.TB, m *harness.Mesh) caller {
	t.Helper()
	nc, err := nats.Connect(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return caller{t, nc}
}

// raw is the whole answer of a function of a namespace.
func (c caller) raw(namespace, id, input string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), harness.Guard)
	defer cancel()
	return c.nc.RequestWithContext(ctx, "wb.v1.fn."+namespace+"."+id, []byte(input))
}

// call is what a function of the default namespace returns.
func (c caller) call(id, input string) string {
	c.t.Helper()
	answer, err := c.raw("default", id, input)
	if err != nil {
		c.t.Fatalf("%s: %v", id, err)
	}
	if e := protocol.ParseErrorBody(answer.Data); e != nil {
		c.t.Fatalf("%s(%s): %v", id, input, e)
	}
	return string(answer.Data)
}

// wants checks what a function returns, to the byte.
func (c caller) wants(id, input, want string) {
	c.t.Helper()
	if got := c.call(id, input); got != want {
		c.t.Errorf("%s(%s)\n     is %s\nit must be %s", id, input, got, want)
	}
}

// refused checks that a function refuses an input, in the body and in the
// headers.
func (c caller) refused(namespace, id, input string, code protocol.Code) {
	c.t.Helper()
	answer, err := c.raw(namespace, id, input)
	if err != nil {
		c.t.Errorf("%s(%s): %v", id, input, err)
		return
	}
	var e protocol.Error
	if err := json.Unmarshal(answer.Data, &e); err != nil || e.Code != code || e.Message == "" ||
		!strings.HasPrefix(answer.Header.Get("Nats-Service-Error"), string(code)) ||
		answer.Header.Get("Nats-Service-Error-Code") != strconv.Itoa(code.Status()) {
		c.t.Errorf("%s(%s): %s with the headers %v, want %s", id, input, answer.Data, answer.Header, code)
	}
}

// observer observes a topic and gives up what it is told to.
func observer(t testing.TB, c *client.Client, topic, id string, gives func() error) *client.Worker {
	t.Helper()
	w, err := c.Observe(t.Context(), topic, func(context.Context, *client.Delivery) error { return gives() }, client.ID(id), client.MaxRetries(1))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var errGivenUp = errors.New("there is no such customer")

func fails() error { return errGivenUp }

// came waits for so many deliveries.
func came(t testing.TB, n *atomic.Int64, want int64) {
	t.Helper()
	harness.Await(t, fmt.Sprintf("%d deliveries", want), func() bool { return n.Load() >= want })
}

func publish(t testing.TB, c *client.Client, topic string, payloads ...string) (ids []string) {
	t.Helper()
	messages := make([]client.Message, len(payloads))
	for i, p := range payloads {
		messages[i] = client.Message{To: client.Topic(topic), Data: []byte(p)}
	}
	results, err := c.PublishMany(t.Context(), messages)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		ids = append(ids, r.Receipt.MessageID)
	}
	return ids
}

// stats are the numbers of a queue or a topic.
func (c caller) stats(name string) (s protocol.TopicStats) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.call(protocol.FunctionTopicStats, fmt.Sprintf(`{"topic":%q}`, name))), &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c caller) awaitDead(name string, n int64) {
	c.t.Helper()
	harness.Await(c.t, fmt.Sprintf("%d dead letters of %s", n, name), func() bool {
		s := c.stats(name)
		return s.Dead == n && s.Depth == 0
	})
}

func (c caller) dead(input string) (all []protocol.DeadMessage) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.call(protocol.FunctionDLQMessages, input)), &all); err != nil {
		c.t.Fatal(err)
	}
	return all
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	for name, test := range map[string]func(*testing.T, *harness.Mesh, caller){
		"what is refused":       refusals,
		"what is not there":     nothing,
		"namespaces":            namespaces,
		"dead letters of two":   twoSubscribers,
		"pages":                 pages,
		"large dead letters":    large,
		"workers and functions": workers,
		"feeds":                 feeds,
		"publishing":            publishing,
		"jobs":                  jobs,
		"one name for two":      oneName,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, m.For(t), newCaller(t, m))
		})
	}
}

func refusals(_ *testing.T, _ *harness.Mesh, c caller) {
	targets := []string{
		protocol.FunctionRedrive, protocol.FunctionRedriveMessage, protocol.FunctionDiscardMessage,
		protocol.FunctionTopicStats, protocol.FunctionDLQMessages, protocol.FunctionPublish,
	}
	for _, id := range targets {
		for _, input := range []string{`{}`, ``, `{"queue":"a","topic":"b"}`, `{"queue":"a","topick":"b"}`, `["a"]`, `"a"`, `{"queue":1}`, `{"queue":`, `{} {}`, `{"topic":"a","data":1} x`} {
			c.refused("default", id, input, protocol.CodeInvalidArgs)
		}
		more := ""
		switch {
		case strings.HasSuffix(id, "_message"):
			more = `,"message_id":"x"`
		case id == protocol.FunctionPublish:
			more = `,"data":1`
		}
		c.refused("default", id, `{"topic":"a b"`+more+`}`, protocol.CodeInvalidName)
	}
	for id, input := range map[string]string{
		protocol.FunctionRedriveMessage: `{"queue":"a"}`,
		protocol.FunctionDLQMessages:    `{"queue":"a","limit":-1}`,
		protocol.FunctionPublish:        `{"topic":"a"}`,
		protocol.FunctionListTopics:     `{"all":true}`,
		protocol.FunctionDLQTopics:      `{"include_empty":"yes"}`,
		protocol.FunctionWorkersList:    `{"name":"a"}`,
	} {
		c.refused("default", id, input, protocol.CodeInvalidArgs)
	}
	for _, id := range []string{protocol.FunctionOnMessage, protocol.FunctionOnEngineChange, protocol.FeedFunctions, protocol.FeedWorkers} {
		c.refused("default", id, `{}`, protocol.CodeForbidden)
		c.refused("ns1", id, `{}`, protocol.CodeForbidden)
	}
}

func nothing(_ *testing.T, _ *harness.Mesh, c caller) {
	for _, key := range []string{"queue", "topic"} {
		for _, name := range []string{"no.such", "no.such::observer:x", "/queue/none/such", "/topic/no.such", "/jobs/no.such"} {
			in := func(more string) string { return fmt.Sprintf(`{%q:%q%s}`, key, name, more) }
			c.wants(protocol.FunctionTopicStats, in(""), `{"depth":0,"consumer_count":0,"dlq_depth":0,"config":null,"delivered":0,"failed":0}`)
			c.wants(protocol.FunctionDLQMessages, in(""), `[]`)
			c.wants(protocol.FunctionRedrive, in(""), fmt.Sprintf(`{"queue":%q,"redriven":0}`, name))
			for _, id := range []string{"nobody", "01a22903-c22f-72ef-812a-e20f3ee053c3"} {
				want := fmt.Sprintf(`{"queue":%q,"message_id":%q,"redriven":0}`, name, id)
				c.wants(protocol.FunctionRedriveMessage, in(fmt.Sprintf(`,"message_id":%q`, id)), want)
				c.wants(protocol.FunctionDiscardMessage, in(fmt.Sprintf(`,"message_id":%q`, id)), want)
			}
		}
	}
}

func namespaces(t *testing.T, _ *harness.Mesh, c caller) {
	answer, err := c.raw("ns1", protocol.FunctionRedrive, `{"queue":"no.such"}`)
	if err != nil || string(answer.Data) != `{"queue":"no.such","redriven":0}` {
		t.Errorf("redrive in ns1: %s, %v", answer.Data, err)
	}
	for _, id := range protocol.ProviderFunctions() {
		if _, err := c.raw("ns1", id, `{}`); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s in ns1: %v", id, err)
		}
	}
}

// Two subscribers of a topic give messages up, and a third does not: counts,
// lists and redrives agree, and reach those alone that gave up.
func twoSubscribers(t *testing.T, m *harness.Mesh, c caller) {
	const topic = "orders.two"
	w := m.Connect()
	var took, gave atomic.Int64
	observer(t, w, topic, "ok", func() error { took.Add(1); return nil })
	observer(t, w, topic, "a", func() error { gave.Add(1); return errGivenUp })
	observer(t, w, topic, "b", fails)
	id := publish(t, w, topic, `{"order":7}`)[0]
	c.awaitDead(topic, 2)
	came(t, &took, 1)
	c.awaitDead(topic+"::observer:a", 1)
	c.awaitDead(topic+"::observer:ok", 0)
	if s := c.stats(topic); s.Consumers != 3 || s.Delivered != 3 || s.Failed != 2 {
		t.Errorf("%+v", s)
	}
	c.contains(protocol.FunctionListTopics, `{}`, `{"name":"orders.two","broker_type":"builtin","subscriber_count":3}`)
	c.contains(protocol.FunctionDLQTopics, `{}`, `{"topic":"orders.two","broker_type":"builtin","message_count":2}`)
	letters := c.dead(fmt.Sprintf(`{"queue":%q}`, topic))
	for _, l := range letters {
		if l.ID != id || string(l.Payload) != `{"order":7}` || l.Error != errGivenUp.Error() || l.Retries != 1 || l.Size != 11 || l.FailedAt < 1e12 {
			t.Errorf("%+v", l)
		}
	}
	if len(letters) != 2 {
		t.Fatalf("%d dead letters, want 2", len(letters))
	}

	c.wants(protocol.FunctionRedriveMessage, fmt.Sprintf(`{"queue":"%s::observer:a","message_id":%q}`, topic, id),
		fmt.Sprintf(`{"queue":"%s::observer:a","message_id":%q,"redriven":1}`, topic, id))
	came(t, &gave, 2)
	c.awaitDead(topic, 2)
	c.wants(protocol.FunctionRedrive, fmt.Sprintf(`{"topic":%q}`, topic), fmt.Sprintf(`{"queue":%q,"redriven":2}`, topic))
	came(t, &gave, 3)
	c.awaitDead(topic, 2)
	c.wants(protocol.FunctionDiscardMessage, fmt.Sprintf(`{"topic":%q,"message_id":%q}`, topic, id),
		fmt.Sprintf(`{"queue":%q,"message_id":%q,"redriven":2}`, topic, id))
	c.awaitDead(topic, 0)
	if n := took.Load(); n != 1 {
		t.Errorf("the subscriber that took the message had it %d times", n)
	}
	if got := c.call(protocol.FunctionDLQTopics, `{}`); strings.Contains(got, topic) {
		t.Errorf("%s has no dead letters any more: %s", topic, got)
	}
	c.contains(protocol.FunctionDLQTopics, `{"include_empty":true}`, `{"topic":"orders.two","broker_type":"builtin","message_count":0}`)
}

// contains checks that an answer, an array, has an element.
func (c caller) contains(id, input, want string) {
	c.t.Helper()
	var all []json.RawMessage
	text := c.call(id, input)
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		c.t.Fatalf("%s: %v in %s", id, err, text)
	}
	if !slices.ContainsFunc(all, func(one json.RawMessage) bool { return bytes.Equal(one, []byte(want)) }) {
		c.t.Errorf("%s has no %s: %s", id, want, text)
	}
}

func pages(t *testing.T, m *harness.Mesh, c caller) {
	const topic, total = "orders.pages", 120
	w := m.Connect()
	observer(t, w, topic, "a", fails)
	payloads := make([]string, total)
	for i := range payloads {
		payloads[i] = strconv.Itoa(i)
	}
	want := publish(t, w, topic, payloads...)
	c.awaitDead(topic, total)
	var first []string
	for turn := range 3 {
		var got []string
		for offset := 0; ; offset += 50 {
			page := c.dead(fmt.Sprintf(`{"topic":%q,"offset":%d}`, topic, offset))
			for _, l := range page {
				got = append(got, l.ID)
			}
			if len(page) < 50 {
				break
			}
		}
		if turn == 0 {
			first = got
		}
		if !slices.Equal(first, got) {
			t.Fatal("looking changes the order")
		}
	}
	slices.Sort(first)
	slices.Sort(want)
	if !slices.Equal(first, want) {
		t.Errorf("the pages have %d dead letters, which are not the %d there are", len(first), total)
	}
}

// An answer that would be too large for NATS has every dead letter all the same.
func large(t *testing.T, m *harness.Mesh, c caller) {
	const topic, total = "orders.large", 8
	w := m.Connect()
	observer(t, w, topic, "a", fails)
	big := `"` + strings.Repeat("x", 900<<10) + `"`
	publish(t, w, topic, slices.Repeat([]string{big}, total)...)
	publish(t, w, topic, "no JSON", "\xff\xfe")
	c.awaitDead(topic, total+2)
	letters := c.dead(fmt.Sprintf(`{"topic":%q}`, topic))
	if len(letters) != total+2 {
		t.Fatalf("%d dead letters", len(letters))
	}
	whole := 0
	for _, l := range letters {
		switch {
		case l.Size != len(big):
		case !l.Truncated && string(l.Payload) == big:
			whole++
		case !l.Truncated || string(l.Payload) != "null":
			t.Errorf("%d bytes of payload, truncated: %v", len(l.Payload), l.Truncated)
		}
	}
	if whole == 0 || whole == total {
		t.Errorf("%d of %d have their payload", whole, total)
	}
	c.wants(protocol.FunctionRedrive, fmt.Sprintf(`{"topic":%q}`, topic), fmt.Sprintf(`{"queue":%q,"redriven":%d}`, topic, total+2))
	c.awaitDead(topic, total+2)
	for _, l := range c.dead(fmt.Sprintf(`{"topic":%q,"limit":1000}`, topic)) {
		switch l.Size {
		case 7:
			if string(l.Payload) != `"no JSON"` && !l.Truncated {
				t.Errorf("%s", l.Payload)
			}
		case 2:
			if string(l.Payload) != `"//4="` && !l.Truncated {
				t.Errorf("%s", l.Payload)
			}
		}
	}
}

func workers(t *testing.T, m *harness.Mesh, c caller) {
	w := m.Connect(client.Name("host/upper"), client.Namespace("texts"))
	f, err := w.Handle(t.Context(), "texts", "text::upper", func(context.Context, []byte) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	var list protocol.WorkersList
	if err := json.Unmarshal([]byte(c.call(protocol.FunctionWorkersList, `{}`)), &list); err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for _, w := range list.Workers {
		have[w.Namespace+" "+w.Name] = w.Functions
		if w.Status != "connected" || w.Count != len(w.Functions) {
			t.Errorf("%+v", w)
		}
	}
	for name, functions := range map[string][]string{
		"default queue": protocol.ProjectFunctions(), "texts queue": protocol.ProjectFunctions(),
		"default queue-engine": protocol.ProviderFunctions(), "texts host/upper": {"text::upper"},
	} {
		if !slices.Equal(have[name], functions) {
			t.Errorf("%s has %v, want %v", name, have[name], functions)
		}
	}
	c.wants(protocol.FunctionInfoOf, `{"function_id":"text::upper","namespace":"texts"}`,
		`{"function_id":"text::upper","namespace":"texts","worker_name":"host/upper","workers":["host/upper"]}`)
	c.wants(protocol.FunctionInfoOf, `{"function_id":"engine::workers::list"}`,
		`{"function_id":"engine::workers::list","namespace":"default","worker_name":"queue-engine","workers":["queue-engine"]}`)
	c.refused("default", protocol.FunctionInfoOf, `{"function_id":"text::upper"}`, protocol.CodeFunctionNotFound)
	c.refused("default", protocol.FunctionInfoOf, `{"function_id":""}`, protocol.CodeInvalidName)
	for _, id := range []string{protocol.FunctionRedrive, protocol.FunctionOnMessage} {
		if _, err := w.Handle(t.Context(), "texts", id, func(context.Context, []byte) ([]byte, error) { return nil, nil }); protocol.CodeOf(err) != protocol.CodeForbidden {
			t.Errorf("serving %s: %v", id, err)
		}
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.refused("default", protocol.FunctionInfoOf, `{"function_id":"text::upper","namespace":"texts"}`, protocol.CodeFunctionNotFound)
}

// feeds are observed as a topic is, and by no other argument.
func feeds(t *testing.T, m *harness.Mesh, c caller) {
	events := make(chan string, 256)
	for verb, answer := range map[string]string{"probe": "", "claims": "{}"} {
		if _, err := c.nc.Subscribe("wb.v1.worker.feeds0000000000000000w."+verb, func(msg *nats.Msg) { _ = msg.Respond([]byte(answer)) }); err != nil {
			t.Fatal(err)
		}
	}
	subscribed := hello(t, c, "feeds0000000000000000w",
		`{"ref":"f","function_id":"engine::on-functions-changed"},{"ref":"w","function_id":"engine::on-workers-changed","args":{"group":"watchers"}}`)
	var r protocol.Registered
	if err := json.Unmarshal(subscribed, &r); err != nil || len(r.Subscriptions) != 2 {
		t.Fatalf("%s", subscribed)
	}
	for _, s := range r.Subscriptions {
		if _, err := c.nc.Subscribe(s.Deliver, func(msg *nats.Msg) {
			events <- string(msg.Data)
			_ = msg.Respond(nil)
		}); err != nil {
			t.Fatal(err)
		}
	}
	joined := make(chan bool, 1)
	if _, err := m.Connect().Observe(t.Context(), protocol.TopicWorkersChanged, func(_ context.Context, d *client.Delivery) error {
		if string(d.Data) == `{"change":"joined","worker":{"name":"host/fed","namespace":"fed"}}` {
			joined <- true
		}
		return nil
	}, client.ID("a")); err != nil {
		t.Fatal(err)
	}
	w := m.Connect(client.Name("host/fed"), client.Namespace("fed"))
	if _, err := w.Handle(t.Context(), "fed", "text::fed", func(context.Context, []byte) ([]byte, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{
		`{"worker":{"name":"host/fed","namespace":"fed"},"added":[{"namespace":"fed","id":"text::fed"}]}`:   true,
		`{"worker":{"name":"host/fed","namespace":"fed"},"removed":[{"namespace":"fed","id":"text::fed"}]}`: true,
		`{"change":"joined","worker":{"name":"host/fed","namespace":"fed"}}`:                                true,
		`{"change":"left","worker":{"name":"host/fed","namespace":"fed"}}`:                                  true,
	}
	w.Close(t.Context())
	for len(wanted) > 0 {
		delete(wanted, harness.Receive(t, fmt.Sprintf("one of %v", wanted), events))
	}
	harness.Receive(t, "that it has joined, as a topic's message", joined)
	for spec, code := range map[string]protocol.Code{
		`{"ref":"a","function_id":"engine::on-workers-changed","args":{"topic":"x"}}`: protocol.CodeInvalidArgs,
		`{"ref":"a","function_id":"queue::on-engine-change"}`:                         protocol.CodeForbidden,
		`{"ref":"a","function_id":"no::such"}`:                                        protocol.CodeFunctionNotFound,
	} {
		if e := protocol.ParseErrorBody(hello(t, c, "refused00000000000000w", spec)); e == nil || e.Code != code {
			t.Errorf("%s: %v", spec, e)
		}
	}
}

// hello declares subscriptions for a worker, and is its answer.
func hello(t *testing.T, c caller, worker, subscriptions string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	answer, err := c.nc.RequestWithContext(ctx, protocol.SubjectHello,
		fmt.Appendf(nil, `{"worker_id":%q,"name":"raw","revision":1,"subscriptions":[%s]}`, worker, subscriptions))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Data
}

// What is published by a call is what observers receive.
func publishing(t *testing.T, m *harness.Mesh, c caller) {
	const topic = "orders.published"
	c.wants(protocol.FunctionPublish, `{"topic":"orders.published","data":"nobody is there"}`, `null`)
	got := make(chan string, 8)
	_, err := m.Connect().Observe(t.Context(), topic, func(_ context.Context, d *client.Delivery) error {
		got <- string(d.Data) + d.Header("baggage")
		return nil
	}, client.ID("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{`{"order": 7}`, `null`, `"text"`} {
		for _, key := range []string{"topic", "queue"} {
			c.wants(protocol.FunctionPublish, fmt.Sprintf(`{%q:%q,"data":%s}`, key, topic, data), `null`)
			if d := harness.Receive(t, "the message", got); d != data {
				t.Errorf("published %s, delivered %s", data, d)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	for range 2 { // the second is the first again
		msg := &nats.Msg{Subject: "wb.v1.fn.ns1." + protocol.FunctionPublish, Header: nats.Header{"Nats-Msg-Id": {"once"}, "baggage": {"a=b"}, "Waybill-Timeout-Ms": {"1000"}}}
		msg.Data = []byte(`{"topic":"/topic/orders.published","data":1}`)
		if answer, err := c.nc.RequestMsgWithContext(ctx, msg); err != nil || string(answer.Data) != "null" {
			t.Errorf("%s, %v", answer.Data, err)
		}
	}
	c.wants(protocol.FunctionPublish, `{"topic":"orders.published","data":2}`, `null`)
	for _, want := range []string{"1a=b", "2"} {
		if d := harness.Receive(t, "the message", got); d != want {
			t.Errorf("%s was delivered, not %s", d, want)
		}
	}
}

// tasks serves a function of a namespace and counts its jobs.
func tasks(t *testing.T, c *client.Client, namespace string, do func(d *client.Delivery) error) {
	t.Helper()
	_, err := c.Handle(t.Context(), namespace, "task::do", func(ctx context.Context, _ []byte) ([]byte, error) {
		d := client.JobOf(ctx)
		if d == nil {
			return nil, errors.New("this is no job")
		}
		return nil, do(d)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func jobs(t *testing.T, m *harness.Mesh, c caller) {
	define := func(name, config string) string { return fmt.Sprintf(`{"queue":%q,"config":%s}`, name, config) }
	const config = `{"max_retries":3,"backoff_ms":1}`
	c.wants(protocol.FunctionDefine, define("tasks", config), `{"queue":"tasks","changed":true}`)
	c.wants(protocol.FunctionDefine, define("tasks", config), `{"queue":"tasks","changed":false}`)
	c.refused("ns1", protocol.FunctionDefine, define("tasks", `{"max_retrys":3}`), protocol.CodeInvalidArgs)
	c.refused("default", protocol.FunctionDefine, `{"queue":" tasks","config":{}}`, protocol.CodeInvalidArgs)
	c.refused("default", protocol.FunctionDefine, `{"name":"tasks"}`, protocol.CodeInvalidArgs)

	type job struct{ data, trace, baggage, receipt string }
	got := make(chan job, 8)
	tasks(t, m.Connect(), "app", func(d *client.Delivery) error {
		got <- job{string(d.Data), d.Header("traceparent"), d.Header("baggage"), d.Header("Waybill-Receipt")}
		if string(d.Data) == `"bad"` {
			return errGivenUp
		}
		return nil
	})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c.wants(protocol.FunctionEnqueue, fmt.Sprintf(
		`{"queue":"tasks","function_id":"task::do","namespace":"app","data":{"n": 1},"messageReceiptId":"r1","traceparent":%q,"baggage":"a=b"}`, trace), `{"messageReceiptId":"r1"}`)
	if j := harness.Receive(t, "the job", got); j != (job{`{"n": 1}`, trace, "a=b", "r1"}) {
		t.Errorf("%+v", j)
	}
	c.wants(protocol.FunctionEnqueue, `{"queue":"tasks","function_id":"task::do","namespace":"app","data":"bad","messageReceiptId":"r2"}`, `{"messageReceiptId":"r2"}`)
	for turn := range 2 {
		for range 3 {
			harness.Receive(t, "a try", got)
		}
		c.awaitDead("tasks", 1)
		if letters := c.dead(`{"queue":"tasks"}`); len(letters) != 1 || string(letters[0].Payload) != `"bad"` || letters[0].Retries != 3 {
			t.Errorf("%+v", letters)
		}
		if turn == 0 {
			c.wants(protocol.FunctionRedrive, `{"queue":"tasks"}`, `{"queue":"tasks","redriven":1}`)
		}
	}
	s := c.stats("tasks")
	if s.Config == nil || s.Config.MaxRetries != 3 || s.Config.Concurrency != 10 || s.Consumers != 1 || s.Delivered != 7 || s.Failed != 6 {
		t.Errorf("%+v", s)
	}
	c.contains(protocol.FunctionListTopics, `{}`, `{"name":"tasks","broker_type":"builtin","subscriber_count":1}`)
	c.contains(protocol.FunctionListTopics, `{}`, `{"name":"default","broker_type":"builtin","subscriber_count":0}`)
	c.contains(protocol.FunctionDLQTopics, `{}`, `{"topic":"tasks","broker_type":"builtin","message_count":1}`)
	c.refused("default", protocol.FunctionEnqueue, `{"queue":"no.such","function_id":"task::do","data":1}`, protocol.CodeNotFound)
	c.refused("default", protocol.FunctionEnqueue, `{"queue":"tasks","data":1}`, protocol.CodeInvalidArgs)
	c.refused("default", protocol.FunctionEnqueue, `{"queue":"tasks","function_id":"task::do","prio":1}`, protocol.CodeInvalidArgs)
}

// A bare name is a named queue and a topic; either has a name of its own too.
func oneName(t *testing.T, m *harness.Mesh, c caller) {
	const name = "mixed"
	w := m.Connect()
	observer(t, w, name, "a", fails)
	tasks(t, w, "mixed", func(*client.Delivery) error { return errGivenUp })
	c.wants(protocol.FunctionDefine, `{"queue":"mixed","config":{"max_retries":1}}`, `{"queue":"mixed","changed":true}`)
	publish(t, w, name, `"of the topic"`)
	c.wants(protocol.FunctionEnqueue, `{"queue":"mixed","function_id":"task::do","namespace":"mixed","data":"of the queue","messageReceiptId":"x"}`, `{"messageReceiptId":"x"}`)
	c.awaitDead(name, 2)
	for source, want := range map[string]string{"/jobs/mixed": `"of the queue"`, "/topic/mixed": `"of the topic"`, "mixed::observer:a": `"of the topic"`} {
		if letters := c.dead(fmt.Sprintf(`{"topic":%q}`, source)); len(letters) != 1 || string(letters[0].Payload) != want {
			t.Errorf("%s: %+v", source, letters)
		}
	}
	for offset, want := range []string{`"of the queue"`, `"of the topic"`} {
		if letters := c.dead(fmt.Sprintf(`{"queue":"mixed","offset":%d,"limit":1}`, offset)); len(letters) != 1 || string(letters[0].Payload) != want {
			t.Errorf("offset %d: %+v", offset, letters)
		}
	}
	c.wants(protocol.FunctionRedrive, `{"queue":"mixed"}`, `{"queue":"mixed","redriven":2}`)
	c.awaitDead(name, 2)
	c.wants(protocol.FunctionRedrive, `{"topic":"/jobs/mixed"}`, `{"queue":"/jobs/mixed","redriven":1}`)
	c.awaitDead(name, 2)
}
