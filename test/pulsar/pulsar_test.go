// Package pulsar_test looks at a mesh on a real Pulsar with Pulsar's own admin
// interface and with a plain client: where messages are at each stage, what strangers
// may do, and what becomes of it all when the broker is killed.
package pulsar_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// place is a mesh and the namespace that has its queues.
type place struct {
	*testing.T
	mesh   *harness.Mesh
	server *live.Pulsar
	space  string
	client *client.Client
}

// on starts a mesh in a namespace of its own, where what fails waits so long.
func on(t *testing.T, server *live.Pulsar, delayMs int) *place {
	t.Helper()
	return through(t, server.URL(), server, delayMs)
}

// through is on, with another way to the broker.
func through(t *testing.T, url string, server *live.Pulsar, delayMs int) *place {
	t.Helper()
	space := server.Namespace(t)
	m := harness.Start(t, "--config", harness.Configuration(t, "adapter: "+configured(url, server, space, delayMs, "native")+"\n"))
	return &place{T: t, mesh: m, server: server, space: space, client: m.Connect()}
}

// configured is a broker of a configuration.
func configured(url string, p *live.Pulsar, space string, delayMs int, delay string) string {
	return fmt.Sprintf("{name: pulsar, config: {url: %q, admin_url: %q, tenant: %s, namespace: %s, negative_ack_redelivery_delay_ms: %d, delay: %s}}",
		url, p.AdminURL(), live.Tenant, space, delayMs, delay)
}

// stranger is a program that knows Pulsar and not the mesh.
func (p *place) stranger() pulsar.Client {
	p.Helper()
	c, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: p.server.URL(), Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)), MetricsRegisterer: prometheus.NewRegistry(),
	})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(c.Close)
	return c
}

func (p *place) topic(name string) string {
	return "persistent://" + live.Tenant + "/" + p.space + "/" + name
}

// put stores a stranger's messages.
func (p *place) put(c pulsar.Client, topic string, all ...*pulsar.ProducerMessage) {
	p.Helper()
	producer, err := c.CreateProducer(pulsar.ProducerOptions{Topic: p.topic(topic), SendTimeout: -1})
	if err != nil {
		p.Fatal(err)
	}
	defer producer.Close()
	for _, m := range all {
		if _, err := producer.Send(p.Context(), m); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *place) publish(to client.Destination, data string, opts ...client.PublishOption) *client.Receipt {
	p.Helper()
	return harness.Publish(p, p.client, to, data, opts...)
}

// work has a route's deliveries ended by the test.
func (p *place) work(execution, route string, opts ...client.WorkOption) (<-chan harness.Taken, *client.Worker) {
	p.Helper()
	return harness.Take(p, p.client, execution, route, opts...)
}

// awaitRest waits until all that was published to a route is acknowledged or dead,
// and so many are dead.
func (p *place) awaitRest(execution, route string, dead int64) {
	p.Helper()
	p.mesh.AwaitDead(execution, route, dead)
}

// backlog is how many messages a topic's subscription has; -1: there is none.
func (p *place) backlog(topic, subscription string) int64 {
	p.Helper()
	s, there := p.server.Subscriptions(p, p.space, topic)[subscription]
	if !there {
		return -1
	}
	return s.Backlog
}

// counted is one of the mesh's counters.
func (p *place) counted(counter string) (n uint64) {
	p.Helper()
	for _, s := range p.mesh.Stats() {
		n += s.Counters[counter]
	}
	return n
}

var errFails = errors.New("no luck")
