// Package brokers_test looks at meshes on each of the brokers: on all of them at
// once, by patterns of names, and on one alone.
package brokers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var errFails = errors.New("no luck")

// kind is a kind of broker.
type kind struct {
	name string
	// start starts one for the test, and says how it is configured.
	start func(t *testing.T) string
}

var kinds = []kind{
	{"builtin", func(*testing.T) string { return "{name: builtin}" }},
	{"rabbitmq", func(t *testing.T) string {
		return fmt.Sprintf("{name: rabbitmq, config: {amqp_url: %q}}", live.SharedRabbitMQ(t).VirtualHost(t))
	}},
	{"artemis", func(t *testing.T) string {
		return fmt.Sprintf("{name: artemis, config: {url: %q}}", live.SharedArtemis(t).URL())
	}},
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
	for _, k := range kinds {
		if k.name == "builtin" {
			continue
		}
		fmt.Fprintf(&brokers, "  %s: %s\n", k.broker(), k.start(t))
		for _, pattern := range []string{"/queue/%s-*/**", "/topic/%s.**", "/jobs/%s-*"} {
			fmt.Fprintf(&routes, "  - {pattern: %s, broker: %s}\n", fmt.Sprintf(pattern, k.name), k.broker())
		}
	}
	return harness.Start(t, "--config", harness.Configuration(t, "adapter: {name: builtin}\nbrokers:\n"+brokers.String()+"routes:\n"+routes.String()))
}
