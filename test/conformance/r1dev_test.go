package conformance

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/rabbitmq"
)

func devVhost(t *testing.T) string {
	v := "v" + nuid.Next()
	for _, p := range []string{"/api/vhosts/" + v, "/api/permissions/" + v + "/guest"} {
		r, _ := http.NewRequest("PUT", "http://guest:guest@127.0.0.1:26691"+p, strings.NewReader(`{"configure":".*","write":".*","read":".*"}`))
		r.Close = true
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
	}
	t.Cleanup(func() {
		r, _ := http.NewRequest("DELETE", "http://guest:guest@127.0.0.1:26691/api/vhosts/"+v, nil)
		r.Close = true
		if a, err := http.DefaultClient.Do(r); err == nil {
			a.Body.Close()
		}
	})
	return "amqp://guest:guest@127.0.0.1:26690/" + v
}

func TestDev(t *testing.T) {
	if os.Getenv("R1") == "" {
		return
	}
	m := startMeshOn(t, devVhost(t), router.Limits{})
	brokertest.Run(t, brokertest.Target{URL: m.server.URL(), Broker: rabbitmq.Name, Capabilities: rabbitmq.Capabilities, Restart: m.restart})
}
