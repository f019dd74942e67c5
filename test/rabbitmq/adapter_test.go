package rabbitmq_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// The adapter of a running mesh is tried before it is stored: one that cannot be
// reached changes nothing, another is used from the next start on.
func TestTheAdapterOfARunningMesh(t *testing.T) {
	address := live.SharedRabbitMQ(t).VirtualHost(t)
	m := harness.Start(t)
	refused := m.Run("config", "apply", configuration(t, "amqp://guest:s3cret@127.0.0.1:1/"))
	if refused.Code != 4 || !strings.Contains(refused.Stderr, "127.0.0.1:1") || strings.Contains(refused.Stderr, "s3cret") {
		t.Errorf("a broker that is not there: %+v", refused)
	}
	if r := publish(t, m.Connect(), client.Queue("run", "step"), "x"); r.Broker != "builtin" {
		t.Errorf("after it a publish goes to %s", r.Broker)
	}
	applied := m.Run("config", "apply", configuration(t, address))
	if applied.Code != 0 || !strings.Contains(applied.Stderr, "key adapter: routers use another one when they start again") {
		t.Fatalf("a broker that is there: %+v", applied)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if password, is := at.User.Password(); shown(m) == "" || is && strings.Contains(shown(m), ":"+password+"@") {
		t.Errorf("it is shown as %s", shown(m))
	}
	m.Terminate()
	m.Restart()
	if r := publish(t, m.Connect(), client.Queue("run", "step"), "x"); r.Broker != "rabbitmq" {
		t.Errorf("after a restart a publish goes to %s", r.Broker)
	}
}

func shown(m *harness.Mesh) string { return m.Run("config", "show").Stdout }
