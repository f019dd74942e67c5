package config_test

import (
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/internal/config"
)

// The schema takes what the reader takes, and refuses what it refuses, as far as a
// schema can say.
func TestTheSchemaAgreesWithTheReader(t *testing.T) {
	t.Parallel()
	printed, err := json.Marshal(config.Schema(up.Keys(&up.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(printed, &document); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("configuration.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("configuration.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{}`, `[{}]`, `null`, `[{}, {}]`, `[]`, `3`, `"x"`,
		`{"data":"d","listen":"127.0.0.1:1","http":"127.0.0.1:0","sync":"2m","drain_timeout":"3s","max_payload":5,"limits":{"queue_bytes":0}}`,
		`{"max_payload":0}`, `{"limits":{"queue_bytes":-1}}`, `{"limits":{"frob":1}}`, `{"data":3}`, `{"frob":1}`, `{"limits":null}`, `{"data":null}`,
		`{"adapter":{"name":"builtin","config":{"store_method":"in_memory","file_path":"x","save_interval_ms":1}}}`, `{"adapter":{"config":{"store_method":"file_based"}}}`,
		`{"adapter":{"name":"file_based","config":{"save_interval_ms":0}}}`, `{"adapter":{"name":"in_memory","config":{"store_method":"x"}}}`,
		`{"adapter":{"name":"memory"}}`, `{"adapter":{"name":"builtin","config":{"redis_url":"x"}}}`, `{"adapter":{"frob":1}}`, `{"adapter":null}`, `{"adapter":[]}`,
		`{"subscriber_retention_ms":0}`, `{"subscriber_retention_ms":1.5}`, `{"subscriber_retention_ms":5.0}`, `{"subscriber_retention_ms":"5"}`, `{"subscriber_retention_ms":31536000001}`,
		`{"run_jobs_in":"enqueuer"}`, `{"run_jobs_in":"x"}`, `{"observers":{"activation_timeout_ms":1,"observer_grace_ms":0}}`, `{"observers":{"activation_timeout_ms":0}}`,
		`{"queue_configs":{"a":null,"b":{},"c":{"type":"fifo","message_group_field":"g","concurrency":65536,"on_dead_letter":"block","redeliver_on_engine_restart":true}}}`,
		`{"queue_configs":{"a":{"concurrency":0}}}`, `{"queue_configs":{"a":{"type":"concurrent"}}}`, `{"queue_configs":{"a":{"frob":1}}}`, `{"queue_configs":[]}`, `{"queue_configs":{"a":3}}`,
		`{"brokers":{"a":{"name":"rabbitmq","state":"draining","config":{"prefix":"x"}}},"routes":[{"pattern":"/topic/a","broker":"builtin"}]}`,
		`{"brokers":{}}`, `{"brokers":{"a":{}}}`, `{"brokers":{"a":null}}`, `{"brokers":{"a":{"name":"builtin"}}}`, `{"brokers":{"a":{"name":"rabbitmq","state":"off"}}}`,
		`{"brokers":{"a":{"name":"rabbitmq","frob":1}}}`, `{"brokers":{"a":{"name":"rabbitmq","config":{"store_method":"x"}}}}`, `{"brokers":null}`, `{"brokers":[]}`,
		`{"routes":[]}`, `{"routes":null}`, `{"routes":{}}`, `{"routes":[null]}`, `{"routes":[{"pattern":"/topic/a"}]}`, `{"routes":[{"broker":"builtin"}]}`,
		`{"routes":[{"pattern":"/topic/a","broker":"builtin","frob":1}]}`,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		var process up.Options
		_, refused := config.Parse("f.yaml", []byte(text), up.Keys(&process))
		if invalid := schema.Validate(value); (invalid == nil) != (refused == nil) {
			t.Errorf("%s: the schema says %v, the reader %v", text, invalid, refused)
		}
	}
}
