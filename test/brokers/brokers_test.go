// Package brokers_test looks at meshes on each of the brokers: on all of them at
// once, by patterns of names, and on one alone.
package brokers_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// artemisTurn is whose Artemis is: all that is in it goes with a test that has it.
var artemisTurn sync.Mutex

// sharedArtemis is Artemis for this test alone, once the one before has ended.
func sharedArtemis(t *testing.T) *live.Artemis {
	t.Helper()
	artemisTurn.Lock()
	t.Cleanup(artemisTurn.Unlock)
	return live.SharedArtemis(t)
}

var errFails = errors.New("no luck")

// kind is a kind of broker.
type kind struct {
	name string
	// start starts one for the test, and says how it is configured.
	start func(t *testing.T) string
	// oneDelay: what fails waits as long as it is configured to, which is backoff.
	oneDelay bool
}

// redis has topics only, and of these what comes while somebody is there.
var redis = kind{name: "redis", start: func(t *testing.T) string {
	return fmt.Sprintf("{name: redis, config: {redis_url: %q}}", live.SharedRedis(t).URL())
}}

// kinds are those that keep messages.
var kinds = []kind{
	{name: "builtin", start: func(*testing.T) string { return "{name: builtin}" }},
	{name: "rabbitmq", start: func(t *testing.T) string {
		return fmt.Sprintf("{name: rabbitmq, config: {amqp_url: %q}}", live.SharedRabbitMQ(t).VirtualHost(t))
	}},
	{name: "artemis", start: func(t *testing.T) string {
		return fmt.Sprintf("{name: artemis, config: {url: %q}}", sharedArtemis(t).URL())
	}},
	{name: "pulsar", oneDelay: true, start: func(t *testing.T) string {
		p := live.SharedPulsar(t)
		return fmt.Sprintf("{name: pulsar, config: {url: %q, admin_url: %q, tenant: %s, namespace: %s, negative_ack_redelivery_delay_ms: %d}}",
			p.URL(), p.AdminURL(), live.Tenant, p.Namespace(t), backoff.Milliseconds())
	}},
}

// waits has what fails wait so long, where that is the worker's to say.
func (k kind) waits(d time.Duration) []client.WorkOption {
	if k.oneDelay {
		return nil
	}
	return []client.WorkOption{client.Backoff(d)}
}

// broker is what the kind's is called in a mesh that has all of them: the mesh's own
// transport has no other name.
func (k kind) broker() string {
	if k.name == "builtin" {
		return k.name
	}
	return "the-" + k.name
}

// execution, topic and queue are names that are routed to the kind's broker.
func (k kind) execution() string { return k.name + "-run" }
func (k kind) topic() string     { return k.name + ".orders" }
func (k kind) queue() string     { return k.name + "-jobs" }

// onAll starts a mesh that has all brokers at once.
func onAll(t *testing.T) *harness.Mesh {
	t.Helper()
	var brokers, routes strings.Builder
	has := func(k kind, patterns ...string) {
		fmt.Fprintf(&brokers, "  %s: %s\n", k.broker(), k.start(t))
		for _, pattern := range patterns {
			fmt.Fprintf(&routes, "  - {pattern: %s, broker: %s}\n", fmt.Sprintf(pattern, k.name), k.broker())
		}
	}
	for _, k := range kinds[1:] { // the mesh's own is there anyhow
		has(k, "/queue/%s-*/**", "/topic/%s.**", "/jobs/%s-*")
	}
	has(redis, "/topic/%s.**")
	return harness.Start(t, "--config", harness.Configuration(t, "adapter: {name: builtin}\nbrokers:\n"+brokers.String()+"routes:\n"+routes.String()))
}

// untilDone tries again what the mesh could not do yet. A broker takes its time to make a
// queue, and longer on a machine with much else to do.
func untilDone(t testing.TB, what string, try func() error) {
	t.Helper()
	harness.Await(t, what, func() bool {
		err := try()
		if code := protocol.CodeOf(err); err != nil && code != protocol.CodeUnavailable && code != protocol.CodeTimeout {
			t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

func observe(t testing.TB, c *client.Client, topic string, h client.Handler, opts ...client.WorkOption) {
	t.Helper()
	untilDone(t, "the observer", func() error {
		_, err := c.Observe(t.Context(), topic, h, opts...)
		return err
	})
}

// publish publishes once, however often it tries.
func publish(t testing.TB, c *client.Client, to client.Destination, data string, opts ...client.PublishOption) (r *client.Receipt) {
	t.Helper()
	opts = append(opts, client.DedupID(nuid.Next()))
	untilDone(t, "the publish", func() (err error) {
		r, err = c.Publish(t.Context(), to, []byte(data), opts...)
		return err
	})
	return r
}
