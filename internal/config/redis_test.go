package config_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestRedisKeys(t *testing.T) {
	c := config.Check(parsed(t, "adapter: {name: redis}"))
	got, is := config.RedisOf(c.Config.Adapter)
	place, err := config.PlaceOf(c.Config.Adapter)
	if !is || c.Err() != nil || err != nil || got.URL != "redis://localhost:6379" || place != "redis://localhost:6379" {
		t.Errorf("nothing set is %+v at %s: %v, %v", got, place, c.Err(), err)
	}
	for text, want := range map[string]string{
		"adapter: {name: redis, config: {redis_url: 'http://h'}}":                                   "key adapter.config.redis_url: it is an address such as redis://",
		"adapter: {name: redis, config: {delay: mesh}}":                                             "key adapter.config.delay: it is not known here",
		"brokers: {a: {name: redis}, b: {name: redis, config: {redis_url: 'redis://localhost/7'}}}": "key brokers.b.config: its messages are where those of brokers.a are",
		"adapter: {name: rabbitmq, config: {delay: broker}}":                                        "key adapter.config.delay: it is \"broker\": it is mesh or native",
	} {
		if _, err := config.Parse("f.yaml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  is refused with %v, want %s", text, err, want)
		}
	}
}

// A named queue is refused where its broker has topics only, but for the default one
// that nobody has asked for.
func TestNamedQueuesNeedABrokerWithQueues(t *testing.T) {
	for text, refused := range map[string]string{
		"adapter: {name: redis}":                                                                                        "",
		"adapter: {name: redis}\nqueue_configs: {default: {}}":                                                          "",
		"adapter: {name: redis}\nqueue_configs: {default: {concurrency: 2}}":                                            "queue_configs.default",
		"adapter: {name: redis}\nqueue_configs: {mail: {}}":                                                             "queue_configs.mail",
		"brokers: {live: {name: redis}}\nqueue_configs: {mail: {}}":                                                     "",
		"brokers: {live: {name: redis}}\nqueue_configs: {mail: {}, b: {}}\nroutes: [{pattern: /jobs/m*, broker: live}]": "queue_configs.mail",
		"adapter: {name: redis}\nqueue_configs: {mail: {}}\nroutes: [{pattern: /jobs/**, broker: builtin}]":             "",
	} {
		_, err := config.Parse("f.yaml", []byte(text), nil)
		if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), "key "+refused+": unsupported") {
			t.Errorf("%s\n  is refused with %v", text, err)
		}
	}
	r := config.Check(config.Document{"adapter": map[string]any{"name": "redis"}, "queue_configs": map[string]any{"mail": map[string]any{}}})
	if protocol.CodeOf(r.Err()) != protocol.CodeUnsupported {
		t.Errorf("an edit is refused with %v", r.Err())
	}
}

// Where what failed waits is a setting of each broker that keeps messages.
func TestDelay(t *testing.T) {
	for text, want := range map[string]bool{
		"adapter: {name: rabbitmq}": false, "adapter: {name: rabbitmq, config: {delay: native}}": false,
		"adapter: {name: rabbitmq, config: {delay: mesh}}": true, "adapter: {name: artemis, config: {delay: mesh}}": true, "adapter: {name: redis}": false, "adapter: {}": false,
	} {
		if c := config.Check(parsed(t, text)); c.Err() != nil || config.IsMeshDelay(c.Config.Adapter) != want {
			t.Errorf("%s: %v, %v", text, config.IsMeshDelay(c.Config.Adapter), c.Err())
		}
	}
}
