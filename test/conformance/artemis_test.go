package conformance

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/services/router"
	"github.com/waybill-mq/waybill/services/router/broker"
	"github.com/waybill-mq/waybill/services/router/broker/artemis"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

func TestArtemis(t *testing.T) {
	a := live.SharedArtemis(t)
	m := startMeshOn(t, onArtemis(a.URL()), router.Limits{})
	brokertest.Run(t, brokertest.Target{
		URL: m.server.URL(), Broker: artemis.Name, Capabilities: artemis.Capabilities, Restart: m.restart,
		Sever: func(t *testing.T) { a.CloseConnections(t) },
		Put: func(t *testing.T, queue string, headers map[string]any, body []byte) {
			putSTOMP(t, a.URL(), queue, headers, body)
		},
	})
}

func onArtemis(address string) func(log *slog.Logger) (broker.Remote, error) {
	return func(log *slog.Logger) (broker.Remote, error) {
		return artemis.New(artemis.Options{URL: address, Logger: log})
	}
}

// putSTOMP publishes as a program does that knows STOMP alone.
func putSTOMP(t *testing.T, address, queue string, headers map[string]any, body []byte) {
	t.Helper()
	name, err := scope.Ledger{}.Parse(queue)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := scope.STOMP{}.Format(name)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := at.User.Password()
	conn, err := stomp.Dial("tcp", at.Host, stomp.ConnOpt.Login(at.User.Username(), password), stomp.ConnOpt.HeartBeat(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Disconnect(); err != nil {
			t.Error(err)
		}
	}()
	opts := []func(*frame.Frame) error{stomp.SendOpt.Receipt, stomp.SendOpt.Header("persistent", "true")}
	for name, value := range headers {
		if name = strings.TrimSpace(name); name != "" {
			opts = append(opts, stomp.SendOpt.Header(name, strings.ToValidUTF8(fmt.Sprint(value), "?")))
		}
	}
	if err := conn.Send(destination, "", body, opts...); err != nil {
		t.Fatal(err)
	}
}
