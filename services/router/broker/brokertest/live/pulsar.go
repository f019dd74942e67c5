package live

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nuid"
)

// Pulsar is a running Apache Pulsar.
type Pulsar struct{ *server }

var pulsar = kind{name: "Pulsar", script: "pulsar.sh", ports: []string{"PULSAR_PORT", "HTTP_PORT", "BOOKIE_PORT"}, addresses: 2}

// SharedPulsar is the one that the tests of this program share, each in namespaces
// of its own; it ends with the program. Nobody may stop it.
func SharedPulsar(t testing.TB) *Pulsar {
	t.Helper()
	return &Pulsar{pulsar.shared(t)}
}

// RunPulsar starts one that ends with this program, and then is gone with its
// data, which is in a directory below the one given; default the system's for
// what passes. environment is of its script, as in HEAP=1g.
func RunPulsar(below string, environment ...string) (*Pulsar, error) {
	s, err := pulsar.run(below, environment...)
	return &Pulsar{s}, err
}

// StartPulsar starts one for this test alone, that may be killed and started again.
func StartPulsar(t testing.TB) *Pulsar {
	t.Helper()
	return &Pulsar{pulsar.start(t)}
}

// URL is where messages go through.
func (p *Pulsar) URL() string { return p.addresses[0] }

// AdminURL is where its admin interface is.
func (p *Pulsar) AdminURL() string { return p.addresses[1] }

// Tenant is the one that namespaces of tests are in.
const Tenant = "public"

// Namespace makes an empty namespace and returns its name in Tenant. It stays as long
// as the broker.
func (p *Pulsar) Namespace(t testing.TB) string {
	t.Helper()
	name, err := p.MakeNamespace()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// MakeNamespace is Namespace for who is no test.
func (p *Pulsar) MakeNamespace() (string, error) {
	name := "t" + nuid.Next()
	return name, p.admin(http.MethodPut, "namespaces/"+Tenant+"/"+name, struct{}{}, nil)
}

// Held is how many messages a namespace has that are not settled.
func (p *Pulsar) Held(namespace string) (n int64, err error) {
	var all []string
	if err := p.admin(http.MethodGet, "persistent/"+Tenant+"/"+namespace, nil, &all); err != nil {
		return 0, err
	}
	for _, topic := range all {
		subscriptions, err := p.subscriptions(namespace, topic[strings.LastIndex(topic, "/")+1:])
		if err != nil {
			return 0, err
		}
		for _, s := range subscriptions {
			n += s.Backlog
		}
	}
	return n, nil
}

// Unload has the broker close every producer and consumer of a namespace.
func (p *Pulsar) Unload(t testing.TB, namespace string) {
	t.Helper()
	p.Admin(t, http.MethodPut, "namespaces/"+Tenant+"/"+namespace+"/unload", nil, nil)
}

// PulsarSubscription is what Pulsar says of a subscription.
//
//nolint:tagliatelle // Pulsar's own names
type PulsarSubscription struct {
	Type      string `json:"type"` // Shared, Key_Shared, …; empty: nobody was ever there
	Backlog   int64  `json:"msgBacklog"`
	Unacked   int64  `json:"unackedMessages"`
	Delayed   int64  `json:"msgDelayed"`
	Consumers []any  `json:"consumers"`
}

// Subscriptions are those of a topic of a namespace, by name; nil: there is no such
// topic.
func (p *Pulsar) Subscriptions(t testing.TB, namespace, topic string) map[string]PulsarSubscription {
	t.Helper()
	all, err := p.subscriptions(namespace, topic)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (p *Pulsar) subscriptions(namespace, topic string) (map[string]PulsarSubscription, error) {
	var stats struct {
		Subscriptions map[string]PulsarSubscription `json:"subscriptions"`
	}
	err := p.admin(http.MethodGet, "persistent/"+Tenant+"/"+namespace+"/"+url.PathEscape(topic)+"/stats?getPreciseBacklog=true", nil, &stats)
	if err != nil && strings.HasPrefix(err.Error(), "404 ") {
		return nil, nil //nolint:nilnil // there is none
	}
	return stats.Subscriptions, err
}

// Topics are those of a namespace, without where they are.
func (p *Pulsar) Topics(t testing.TB, namespace string) (all []string) {
	t.Helper()
	p.Admin(t, http.MethodGet, "persistent/"+Tenant+"/"+namespace, nil, &all)
	for i, topic := range all {
		all[i] = topic[strings.LastIndex(topic, "/")+1:]
	}
	return all
}

// Admin asks the admin interface; path is what follows /admin/v2/. into may be nil.
func (p *Pulsar) Admin(t testing.TB, method, path string, body, into any) {
	t.Helper()
	if err := p.admin(method, path, body, into); err != nil {
		t.Fatalf("%s %s of Pulsar: %v", method, path, err)
	}
}

func (p *Pulsar) admin(method, path string, body, into any) error {
	return ask(method, p.addresses[1]+"/admin/v2/"+path, body, into)
}
