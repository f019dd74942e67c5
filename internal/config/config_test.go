package config_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// A file as people have it who come from elsewhere.
const file = `
- adapter:
    config:
      file_path: data/queue
      save_interval_ms: 5000
      store_method: file_based
    name: builtin
  subscriber_retention_ms: 20000
  queue_configs:
    harness-turn:
      type: fifo
      message_group_field: session_id
      concurrency: 10
      poll_interval_ms: 100
    plain:
`

func TestFile(t *testing.T) {
	read, err := config.Parse("f.yaml", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Document{
		"adapter":                 map[string]any{"name": "builtin", "config": map[string]any{"file_path": "data/queue", "save_interval_ms": int64(5000), "store_method": "file_based"}},
		"subscriber_retention_ms": int64(20000),
		"queue_configs": map[string]any{
			"harness-turn": map[string]any{"type": "fifo", "message_group_field": "session_id", "concurrency": int64(10), "poll_interval_ms": int64(100)},
			"plain":        map[string]any{},
		},
	}
	if diff := cmp.Diff(want, read.Document); diff != "" {
		t.Errorf("it is read as (-want +got)\n%s", diff)
	}
	for i, says := range []string{"f.yaml, line 5, key adapter.config.save_interval_ms: ", "f.yaml, line 10, key queue_configs.harness-turn: poll_interval_ms"} {
		if len(read.Warnings) != 2 || !strings.HasPrefix(read.Warnings[i], says) {
			t.Fatalf("the warnings are %q", read.Warnings)
		}
	}
	effective := config.Check(read.Document).Config
	d := protocol.DefaultQueueDefinition()
	if effective.QueueConfigs["plain"] != d || effective.QueueConfigs["default"] != d || effective.QueueConfigs["harness-turn"].MaxRetries != d.MaxRetries {
		t.Errorf("the queues are %+v", effective.QueueConfigs)
	}
}

func TestDefaults(t *testing.T) {
	r := config.Check(nil)
	if len(r.Problems)+len(r.Warnings) > 0 {
		t.Fatalf("nothing set is %v, %v", r.Problems, r.Warnings)
	}
	want := protocol.Config{
		Adapter:               protocol.Adapter{Name: "builtin", Config: json.RawMessage(`{"save_interval_ms":5000,"store_method":"file_based"}`)},
		SubscriberRetentionMs: 30000, RunJobsIn: "enqueuer",
		Observers:    protocol.ObserverSettings{ActivationTimeoutMs: 30000, ObserverGraceMs: 30000},
		QueueConfigs: map[string]protocol.QueueDefinition{"default": protocol.DefaultQueueDefinition()},
	}
	if diff := cmp.Diff(want, r.Config); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, alias := range []string{"in_memory", "file_based", "builtin"} {
		r := config.Check(config.Document{"adapter": map[string]any{"name": alias}})
		if r.Config.Adapter.Name != "builtin" || config.BuiltinOf(r.Config.Adapter).InMemory() || (len(r.Warnings) == 1) != (alias == "in_memory") {
			t.Errorf("%s is %+v, %v", alias, r.Config.Adapter, r.Warnings)
		}
	}
}

// RabbitMQ's keys have their defaults, a mode that is not known is told of and
// changes nothing, and only there a job may run where it is taken.
func TestRabbitMQsKeys(t *testing.T) {
	adapter := func(settings map[string]any) config.Document {
		return config.Document{"adapter": map[string]any{"name": "rabbitmq", "config": settings}, "run_jobs_in": "worker"}
	}
	r := config.Check(adapter(map[string]any{}))
	got, is := config.RabbitMQOf(r.Config.Adapter)
	want := config.RabbitMQ{AMQPURL: "amqp://localhost:5672", Prefix: "iii", MaxAttempts: 3, PrefetchCount: 10, QueueMode: "standard"}
	if !is || got != want || len(r.Problems)+len(r.Warnings) > 0 || r.Config.RunJobsIn != "worker" {
		t.Errorf("nothing set is %+v, %v, %v", got, r.Problems, r.Warnings)
	}
	for mode, c := range map[string]struct {
		fifo   bool
		warned int
	}{"fifo": {true, 0}, "standard": {false, 0}, "x": {false, 1}, "FIFO": {false, 1}} {
		r := config.Check(adapter(map[string]any{"queue_mode": mode}))
		got, _ := config.RabbitMQOf(r.Config.Adapter)
		if r.Err() != nil || got.FIFO() != c.fifo || len(r.Warnings) != c.warned {
			t.Errorf("the mode %s is fifo: %v, %v, %v", mode, got.FIFO(), r.Problems, r.Warnings)
		}
	}
	for key, value := range map[string]any{"max_attempts": int64(0), "prefetch_count": int64(0), "priority_field": "", "queue_mode": int64(3)} {
		if r := config.Check(adapter(map[string]any{key: value})); r.Err() == nil {
			t.Errorf("%s: %v is taken", key, value)
		}
	}
}

// What a change says may be right only beside what is there.
func TestChanges(t *testing.T) {
	url := map[string]any{"amqp_url": "amqp://localhost"}
	into := config.Document{
		"adapter":       map[string]any{"name": "rabbitmq", "config": url},
		"brokers":       map[string]any{"a": map[string]any{"name": "artemis", "config": map[string]any{"url": "stomp://localhost:61613"}}},
		"queue_configs": map[string]any{"mail": map[string]any{"type": "fifo", "message_group_field": "to"}},
	}
	for text, want := range map[string]string{
		"routes: [{pattern: /queue/x/**, broker: a}]":                  "",
		"brokers: {a: {state: draining}}":                              "",
		"run_jobs_in: worker":                                          "",
		"routes: [{pattern: /queue/x/**, broker: b}]":                  "line 1, key routes.0.broker: no broker is called",
		"adapter: {name: builtin}\nrun_jobs_in: worker":                "line 2, key run_jobs_in: worker is for",
		"brokers: {a: {state: draining, config: {uri: u}}}":            "key brokers.a.config.uri",
		"brokers: {a: {config: {url: 'stomp://other:61613'}}}":         "",
		"adapter: {config: {prefetch_count: 5}}":                       "",
		"queue_configs: {mail: {type: fifo, concurrency: 3}}":          "",
		"queue_configs: {mail: {type: fifo, message_group_field: ''}}": "line 1, key queue_configs.mail.message_group_field",
	} {
		_, err := config.ParseChange("f.yaml", []byte(text), nil, into)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if _, err := config.Parse("f.yaml", []byte(text), nil); err == nil {
			t.Errorf("%q is right by itself", text)
		}
	}
}

// The form of a change can be looked at by itself.
func TestForm(t *testing.T) {
	for text, want := range map[string]string{
		"routes: [{pattern: /queue/x/**, broker: a}]":            "",
		"routes: [{pattern: queue, broker: a}]":                  "line 1, key routes.0.pattern",
		"brokers: {a: {state: draining}}":                        "",
		"brokers: {a: {state: gone}}":                            "key brokers.a.state",
		"brokers: {a: {config: {amqp_url: 'amqp://elsewhere'}}}": "",
		"brokers: {a: {config: {amqp_url: 'http://elsewhere'}}}": "key brokers.a.config.amqp_url: it is an address",
		"brokers: {a: {config: {amqp_url: 'amqp://u:xxxxx@h'}}}": "key brokers.a.config.amqp_url: its password is the mask",
		"adapter: {config: {url: 'stomp://elsewhere:61613'}}":    "",
		"adapter: {config: {uri: x}}":                            "key adapter.config.uri: it is not known here",
		"run_jobs_in: worker":                                    "",
		"queue_configs: {mail: {type: fifo}}":                    "",
		"queue_configs: {mail: {type: lifo}}":                    "key queue_configs.mail.type",
	} {
		file, err := config.ParseForm("f.yaml", []byte(text), nil)
		if want == "" && (err != nil || len(file.Document) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"adapter: {name: memory}":                              "line 1, key adapter.name: it is \"memory\": it is artemis, builtin, pulsar, rabbitmq, redis, file_based or in_memory",
		"adapter: {name: 3}":                                   "line 1, key adapter.name: it is 3",
		"adapter:\n  config:\n    redis_url: x":                "line 3, key adapter.config.redis_url: it is not known here; known are file_path, save_interval_ms, store_method",
		"adapter: {config: {store_method: disk}}":              "key adapter.config.store_method: it is \"disk\": it is file_based or in_memory",
		"adapter: {nam: builtin}":                              "key adapter.nam: it is not known here",
		"adapter: builtin":                                     "key adapter: it takes keys and values",
		"subscriber_retention_ms: -1":                          "it is a whole number from 0 to",
		"subscriber_retention_ms: 1.5":                         "it is 1.5: it is a whole number",
		"subscriber_retention_ms: '5'":                         "it is \"5\": it is a whole number",
		"subscriber_retention_ms:":                             "it has no value",
		"subscriber_retention_ms: 99999999999999999999":        "it is 100000000000000000000: it is a whole number",
		"run_jobs_in: worker":                                  "key run_jobs_in: worker is for the adapter rabbitmq",
		"run_jobs_in: both":                                    "it is enqueuer or worker",
		"queue_configs: {'': {}}":                              "key queue_configs.",
		"queue_configs: {' a': {}}":                            "key queue_configs. a",
		"queue_configs: {a.dlq: {}}":                           "key queue_configs.a.dlq",
		"queue_configs:\n  a:\n    type: fifo\n":               "line 2, key queue_configs.a: message_group_field",
		"queue_configs: {a: {max_retry: 1}}":                   "key queue_configs.a.max_retry: it is not known here; known are backoff_ms, concurrency",
		"queue_configs: {a: {redeliver_on_engine_restart: 1}}": "it is true or false",
		"queue_configs: [a]":                                   "key queue_configs: it takes keys and values",
		"observers: {activation_timeout_ms: 0}":                "from 1 to 1800000",
		"a: 1\nb: 2\n":                                         "line 2, key b",
		"run_jobs_in: 2024-01-01":                              "put text in quotes",
		"queue_configs: {a: {}, a: {}}":                        "already defined",
		"- {}\n- {}":                                           "line 1: it takes keys and values",
		"x":                                                    "line 1: it takes keys and values",
		"{":                                                    "f.yaml: ",
		"1: 2":                                                 "line 1, key 1: a key is text",
		"queue_configs:\n  1: {}":                              "line 2, key queue_configs.1: a key is text",
		"queue_configs: {null: {}}":                            "key queue_configs.null: a key is text",
		"run_jobs_in: enqueuer\n---\ndata: d":                  "line 2: another document",
		"run_jobs_in: enqueuer\n---\n{":                        "f.yaml: ",
	} {
		_, err := config.Parse("f.yaml", []byte(text), nil)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgs || !strings.Contains(err.Error(), "f.yaml") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// What the keys take of a queue is what the mesh takes.
func TestQueuesAreAsTheProtocolSays(t *testing.T) {
	keys := config.Keys()
	queue := keys[slices.IndexFunc(keys, func(k config.Key) bool { return k.Name == "queue_configs" })].Keys
	defaults, err := json.Marshal(protocol.DefaultQueueDefinition())
	if err != nil {
		t.Fatal(err)
	}
	holds, err := config.ParseDocument(defaults)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range queue {
		known[k.Name] = true
		if is, want := fmt.Sprint(k.Default), fmt.Sprint(holds[k.Name]); is != want {
			t.Errorf("the default of %s is %s, of the protocol %s", k.Name, is, want)
		}
		for _, value := range []any{-1, 0, 1, 2, 255, 256, 65536, 65537, 1000000, 1000001, 31536000000, 31536000001, true, "x", "fifo", "standard", "concurrent", "block", "divert", "continue", strings.Repeat("x", 257), 1.5, []any{}} {
			agree(t, k.Name, value)
		}
	}
	agree(t, "frob", 1)
	for field := range reflect.TypeFor[protocol.QueueDefinition]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !known[name] {
			t.Errorf("there is no key %s", name)
		}
	}
}

func agree(t *testing.T, key string, value any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		t.Fatal(err)
	}
	want, refused := protocol.ParseQueueDefinition(body)
	document, err := config.ParseDocument([]byte(`{"queue_configs":{"q":` + string(body) + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	r := config.Check(document)
	if (r.Err() == nil) != (refused == nil) {
		t.Errorf("%s: %v, of the protocol %v", body, r.Err(), refused)
	} else if got := r.Config.QueueConfigs["q"]; refused == nil && got != want {
		t.Errorf("%s is %+v, of the protocol %+v", body, got, want)
	}
}

func TestMergeAndDiff(t *testing.T) {
	parse := func(text string) config.Document {
		d, err := config.ParseDocument([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct{ before, change, after, keys string }{
		{`{}`, `{"a":1}`, `{"a":1}`, "a"},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":null}}`, `{"a":{"c":2}}`, "a.b"},
		{`{"a":{"b":1}}`, `{"a":{"b":1.0}}`, `{"a":{"b":1}}`, ""},
		{`{"queue_configs":{}}`, `{"queue_configs":{"q":{}}}`, `{"queue_configs":{"q":{}}}`, "queue_configs.q"},
		{`{"queue_configs":{"q":{"x":1,"y":2}}}`, `{"queue_configs":{"q":null}}`, `{"queue_configs":{}}`, "queue_configs.q.x queue_configs.q.y"},
		{`{"adapter":{"name":"builtin","config":{"x":1}}}`, `{"adapter":{"name":"other"}}`, `{"adapter":{"name":"other"}}`, "adapter.config.x adapter.name"},
		{`{"adapter":{"config":{"x":1}}}`, `{"adapter":{"name":"builtin"}}`, `{"adapter":{"name":"builtin","config":{"x":1}}}`, "adapter.name"},
	} {
		before := parse(c.before)
		after := before.Merge(parse(c.change))
		if want := parse(c.after); !cmp.Equal(after, want) {
			t.Errorf("%s with %s is %v", c.before, c.change, after)
		}
		if !cmp.Equal(before, parse(c.before)) {
			t.Errorf("merging changed %s", c.before)
		}
		var keys []string
		for _, d := range config.Diff(before, after) {
			keys = append(keys, d.Key)
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%s with %s differs in %s", c.before, c.change, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	read := func(variables map[string]string) (config.Document, error) {
		return config.ReadEnv(func(name string) (string, bool) { v, ok := variables[name]; return v, ok }, nil)
	}
	got, err := read(map[string]string{
		"WAYBILL_ADAPTER_NAME": "builtin", "WAYBILL_ADAPTER_CONFIG_STORE_METHOD": "in_memory", "WAYBILL_RUN_JOBS_IN": "enqueuer",
		"WAYBILL_SUBSCRIBER_RETENTION_MS": "7", "WAYBILL_OBSERVERS_ACTIVATION_TIMEOUT_MS": "8", "WAYBILL_NATS": "x",
	})
	want := config.Document{
		"adapter":                 map[string]any{"name": "builtin", "config": map[string]any{"store_method": "in_memory"}},
		"subscriber_retention_ms": int64(7), "observers": map[string]any{"activation_timeout_ms": int64(8)}, "run_jobs_in": "enqueuer",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for name, value := range map[string]string{
		"WAYBILL_SUBSCRIBER_RETENTION_MS": "soon", "WAYBILL_ADAPTER_NAME": "foo", "WAYBILL_OBSERVERS_OBSERVER_GRACE_MS": "-1",
	} {
		if _, err := read(map[string]string{name: value}); protocol.CodeOf(err) != protocol.CodeInvalidArgs || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	shown := string(config.Redacted(json.RawMessage(`{"a":{"amqp_url":"amqp://me:secret@host:5672/v"},"b":["x://y:secret@z"],"c":"plain"}`)))
	if strings.Contains(shown, "secret") || !strings.Contains(shown, "me:xxxxx@host:5672/v") || !strings.Contains(shown, "plain") {
		t.Errorf("shown is %s", shown)
	}
}

// Whatever a file is, it is refused with a code, or what it sets can be stored and
// read again, and be the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(file))
	f.Add([]byte("adapter: &a {name: builtin}\nobservers:\n  <<: *a\n"))
	f.Add([]byte("queue_configs: {a: {concurrency: 1e3}}"))
	f.Add([]byte("a: &a [*a]"))
	f.Add(fmt.Append(nil, "subscriber_retention_ms: ", uint64(math.MaxUint64)))
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := config.Parse("f", text, nil)
		if err != nil {
			if protocol.CodeOf(err) != protocol.CodeInvalidArgs {
				t.Fatal(err)
			}
			return
		}
		stored, err := config.ParseDocument(read.Document.JSON())
		if err != nil || !cmp.Equal(stored, read.Document) {
			t.Fatalf("stored it is %v, %v, not %v", stored, err, read.Document)
		}
		if r := config.Check(stored); r.Err() != nil {
			t.Fatalf("it was taken, and is refused: %v", r.Err())
		}
	})
}
