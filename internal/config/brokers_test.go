package config_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func parsed(t *testing.T, text string) config.Document {
	t.Helper()
	file, err := config.Parse("f.yaml", []byte(text), nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return file.Document
}

// Mistakes about brokers and routes are named by their keys.
func TestMistakesAboutBrokers(t *testing.T) {
	const one = "brokers: {one: {name: rabbitmq, config: {amqp_url: 'amqp://h/'}}}\n"
	for text, want := range map[string]string{
		"brokers: {one: {config: {}}}":                                                                        "line 1, key brokers.one.name",
		"brokers: {one: {name: builtin}}":                                                                     "key brokers.one.name: it is \"builtin\"",
		"brokers: {rabbitmq: {name: rabbitmq}}":                                                               "key brokers.rabbitmq: rabbitmq is what an adapter is called",
		"brokers: {One: {name: rabbitmq}}":                                                                    "key brokers.One: ",
		"brokers: {one: {name: rabbitmq, state: off}}":                                                        "key brokers.one.state",
		"brokers: {one: {name: rabbitmq, config: {url: x}}}":                                                  "key brokers.one.config.url",
		"brokers: {one: {name: rabbitmq, url: x}}":                                                            "known are config, name, state",
		one + "adapter: {name: rabbitmq, config: {amqp_url: 'amqp://u:p@h:5672'}}":                            "key brokers.one.config: its messages are where those of adapter are",
		one + "adapter: {name: rabbitmq, config: {amqp_url: 'amqp://h/%2F'}}":                                 "key brokers.one.config: its messages are where those of adapter are",
		one + "routes: [{pattern: /topic/a, broker: one}, {pattern: /x/a, broker: one}]":                      "line 2, key routes.1.pattern: it begins with",
		one + "routes: [{pattern: '/topic/a b', broker: one}]":                                                "key routes.0.pattern",
		one + "routes: [{broker: one}]":                                                                       "key routes.0.pattern: it is missing",
		one + "routes: [{pattern: /topic/a, broker: two}]":                                                    "key routes.0.broker: no broker is called \"two\": it is builtin or one",
		one + "routes: [{pattern: /topic/a, broker: rabbitmq}]":                                               "key routes.0.broker",
		one + "routes: {a: b}":                                                                                "key routes: it takes a list",
		strings.Replace(one, "}}}", "}, state: draining}}", 1) + "routes: [{pattern: /topic/a, broker: one}]": "key routes.0.broker: one is draining",
	} {
		if _, err := config.Parse("f.yaml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  is refused with %v, want %s", text, err, want)
		}
	}
}

// The first route that matches counts, and a topic's queues are where the topic is.
func TestRoutes(t *testing.T) {
	c := config.Check(parsed(t, `
brokers: {one: {name: rabbitmq}, two: {name: rabbitmq, config: {prefix: two}}}
routes:
- {pattern: /queue/orders-*/**, broker: one}
- {pattern: /queue/*/mail, broker: two}
- {pattern: /topic/news.*, broker: two}
- {pattern: /topic/news.**, broker: builtin}
- {pattern: /topic/**, broker: one}
- {pattern: /jobs/mail, broker: two}
`)).Config
	p := config.PlacementOf(&c, config.Places(&c, nil))
	r, err := config.NewRouting(&p)
	if err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]string{
		"/queue/orders-7/a.b": "one", "/queue/orders-7/mail": "one", "/queue/x/mail": "two", "/queue/x/mail.b": "builtin", "/queue/x/a": "builtin",
		"/topic/news.a::observer:o": "two", "/topic/news.a.b::@g": "builtin", "/topic/other::@g": "one", "/jobs/mail": "two", "/jobs/mail2": "builtin",
	} {
		if got := r.Of(queue); got != want {
			t.Errorf("%s is on %s, want %s", queue, got, want)
		}
	}
}

// A broker keeps its id while it is where it was, and one that is not named any more
// drains under a name of its own.
func TestPlaces(t *testing.T) {
	var places []protocol.PlacedBroker
	for _, step := range []struct{ text, want string }{
		{"adapter: {name: builtin}", ""},
		{"adapter: {name: rabbitmq, config: {amqp_url: 'amqp://a/'}}", "rabbitmq=rabbitmq active"},
		{"adapter: {name: rabbitmq, config: {amqp_url: 'amqp://u:new@a:5672/'}}", "rabbitmq=rabbitmq active"},
		{"adapter: {name: rabbitmq, config: {amqp_url: 'amqp://b/'}}", "rabbitmq=rabbitmq-# active, rabbitmq-#=rabbitmq draining replaced"},
		{"brokers: {one: {name: rabbitmq, config: {amqp_url: 'amqp://a/'}}}", "one=rabbitmq active, rabbitmq=rabbitmq-# draining replaced"},
		{"brokers: {one: {name: rabbitmq, state: draining, config: {amqp_url: 'amqp://a/'}}}", "one=rabbitmq draining, rabbitmq=rabbitmq-# draining replaced"},
		{"brokers: {one: {name: rabbitmq, state: retired, config: {amqp_url: 'amqp://a/'}}}", "rabbitmq=rabbitmq-# draining replaced"},
	} {
		c := config.Check(parsed(t, step.text)).Config
		places = config.Places(&c, places)
		if got := listed(places); got != step.want {
			t.Errorf("%s\n  has %s\n want %s", step.text, got, step.want)
		}
		if again := config.Places(&c, places); listed(again) != listed(places) {
			t.Errorf("%s\n  looked at again it has %s", step.text, listed(again))
		}
	}
}

// listed are brokers with # for what tells one from another of its name.
func listed(places []protocol.PlacedBroker) string {
	texts := make([]string, len(places))
	for i, b := range places {
		texts[i] = numbered(b.Name) + "=" + numbered(b.ID) + " " + string(b.State)
		if b.Replaced {
			texts[i] += " replaced"
		}
	}
	return strings.Join(texts, ", ")
}

func numbered(name string) string {
	if head, _, is := strings.Cut(name, "-"); is {
		return head + "-#"
	}
	return name
}

// What was configured for another kind of broker is not merged into a new one.
func TestAnotherKindBegins(t *testing.T) {
	before := config.Document{"brokers": map[string]any{"one": map[string]any{"name": "rabbitmq", "config": map[string]any{"prefix": "p"}, "state": "draining"}}}
	for change, want := range map[string]string{
		`{"brokers":{"one":{"name":"other"}}}`:               `{"brokers":{"one":{"name":"other","state":"draining"}}}`,
		`{"brokers":{"one":{"state":"active"}}}`:             `{"brokers":{"one":{"config":{"prefix":"p"},"name":"rabbitmq","state":"active"}}}`,
		`{"brokers":{"one":null}}`:                           `{"brokers":{}}`,
		`{"routes":[{"pattern":"/topic/a","broker":"one"}]}`: `{"brokers":{"one":{"config":{"prefix":"p"},"name":"rabbitmq","state":"draining"}},"routes":[{"broker":"one","pattern":"/topic/a"}]}`,
	} {
		d, err := config.ParseDocument([]byte(change))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(before.Merge(d).JSON()); got != want {
			t.Errorf("%s gives %s, want %s", change, got, want)
		}
	}
}

func TestSecretsAreHidden(t *testing.T) {
	d := protocol.ConfigDifference{Key: "brokers.one.config.password", After: []byte(`"s3cret"`)}
	config.RedactDifference(&d)
	whole := string(config.Redacted([]byte(`{"brokers":{"one":{"config":{"password":"s3cret","amqp_url":"amqp://u:s3cret@h"}}}}`)))
	if strings.Contains(string(d.After)+whole, "s3cret") || !strings.Contains(whole, "amqp://u:") {
		t.Errorf("they are shown: %s, %s", d.After, whole)
	}
}
