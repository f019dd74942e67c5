package brokers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/gateway/diagnose"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestDiagnosis: what is tried goes to the broker that the queues are on. While that
// is away their lines have failed, and those of the others have not; afterwards nothing
// of it is left there.
func TestDiagnosis(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	at, err := url.Parse(server.VirtualHost(t))
	if err != nil {
		t.Fatal(err)
	}
	vhost := strings.TrimPrefix(at.Path, "/")
	link := harness.NewProxy(t, at.Host)
	at.Host = link.Address()
	m := harness.Start(t, "--config", harness.Configuration(t, fmt.Sprintf(`adapter: {name: builtin}
brokers: {far: {name: rabbitmq, config: {amqp_url: %q}}}
routes: [{pattern: /queue/far/**, broker: far}, {pattern: /topic/far.**, broker: far}]`, at)))
	c := m.Connect()
	handle := func(context.Context, *client.Delivery) error { t.Error("a handler was called"); return nil }
	for _, at := range [][2]string{{"far", "away"}, {"far", "both"}, {"near", "both"}, {"near", "here"}} {
		harness.Work(t, c, at[0], at[1], handle)
	}
	if _, err := c.Observe(t.Context(), "far.orders", handle, client.ID("audit")); err != nil {
		t.Fatal(err)
	}
	diagnosed := func(want map[string]string, failed ...string) {
		t.Helper()
		harness.Await(t, fmt.Sprint("a diagnosis of which have failed: ", failed), func() bool {
			report := &diagnose.Report{}
			if err := json.Unmarshal([]byte(m.Run("diagnose", "--json").Stdout), report); err != nil {
				t.Fatal(err)
			}
			var bad []string
			for _, l := range report.Lines {
				name := l.Route + l.Topic
				if on := strings.Join(l.On, ", "); on != want[name] {
					t.Fatalf("%s is on %q, want %q", name, on, want[name])
				}
				if !l.OK {
					bad = append(bad, name)
					t.Logf("%s: %v", name, l.Error)
				}
				if !l.OK && l.Error.Code != protocol.CodeUnavailable && l.Error.Code != protocol.CodeTimeout {
					t.Fatalf("%s has failed with %v", name, l.Error)
				}
			}
			return len(report.Lines) == len(want) && fmt.Sprint(bad) == fmt.Sprint(failed) && report.OK == (len(failed) == 0)
		})
	}
	want := map[string]string{"away": "far", "both": "far", "here": "", "far.orders": "far"}
	diagnosed(want)
	if text := m.Run("diagnose").Stdout; !strings.Contains(text, "1 queue on 1 lane, on far") || !strings.Contains(text, "2 queues on") {
		t.Errorf("as text:\n%s", text)
	}
	link.Part()
	diagnosed(want, "away", "both", "far.orders")
	link.Join()
	diagnosed(want)
	harness.Await(t, "nothing of the diagnoses to be on the broker", func() bool {
		var queues []struct{ Name string }
		server.Admin(t, "GET", "/api/queues/"+url.PathEscape(vhost), nil, &queues)
		for _, q := range queues {
			if strings.Contains(q.Name, "waybill-diagnosis") {
				t.Log(q.Name)
				return false
			}
		}
		return true
	})
}
