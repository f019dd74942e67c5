package pulsar_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestTenant: messages are in the namespace of the tenant that is configured, those that
// wait and those that are dead too, and nothing is anywhere else.
func TestTenant(t *testing.T) {
	t.Parallel()
	server := live.SharedPulsar(t)
	tenant := "acme" + nuid.Next()
	server.Admin(t, http.MethodPut, "tenants/"+tenant, map[string]any{"adminRoles": []string{}, "allowedClusters": []string{"standalone"}}, nil)
	server.Admin(t, http.MethodPut, "namespaces/"+tenant+"/shop", struct{}{}, nil)
	m := harness.Start(t, "--config", harness.Configuration(t, "adapter: "+
		strings.Replace(configured(server.URL(), server, "shop", 1, "native"), "tenant: "+live.Tenant, "tenant: "+tenant, 1)+"\n"))
	c := m.Connect()
	taken, _ := harness.Take(t, c, "t", "tasks", client.MaxRetries(2))
	harness.Publish(t, c, client.Queue("t", "tasks"), "x")
	for range 2 {
		harness.Receive(t, "a delivery", taken).End <- errFails
	}
	m.AwaitDead("t", "tasks", 1)
	var topics []string
	server.Admin(t, http.MethodGet, "persistent/"+tenant+"/shop", nil, &topics)
	at := "persistent://" + tenant + "/shop/queue:t:tasks"
	if !slices.Contains(topics, at) || !slices.Contains(topics, at+"-dlq") {
		t.Errorf("in the namespace are %v", topics)
	}
	if n, err := m.Redrive(protocol.DeadActRequest{Queue: "/queue/t/tasks"}); n != 1 || err != nil {
		t.Errorf("%d are redriven: %v", n, err)
	}
	harness.Receive(t, "what was redriven", taken).End <- nil
	m.AwaitDead("t", "tasks", 0)
}
