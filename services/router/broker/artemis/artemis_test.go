package artemis_test

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/artemis"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a broker and closes it.
func open(t *testing.T, at string) error {
	t.Helper()
	b, err := artemis.New(artemis.Options{URL: at})
	if err != nil {
		return err
	}
	opened := b.Open(t.Context())
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return opened
}

// A broker whose settings would lose messages, or bring them back late, is not
// used, and the setting is named.
func TestSettings(t *testing.T) {
	server := live.SharedArtemis(t)
	for _, at := range []string{server.URL(), server.PlainURL()} {
		if err := open(t, at); err != nil {
			t.Errorf("a broker that is set up well: %v", err)
		}
	}
	const match = "waybill/check" // an address of an execution's, where prefixes are taken off
	for settings, name := range map[string]string{
		`{"maxDeliveryAttempts":5}`:                                              "max-delivery-attempts",
		`{"redeliveryDelay":100}`:                                                "redelivery-delay",
		`{"addressFullMessagePolicy":"DROP"}`:                                    "address-full-policy",
		`{"expiryDelay":60000}`:                                                  "expiry-delay",
		`{"maxExpiryDelay":60000}`:                                               "max-expiry-delay",
		`{"defaultRingSize":10}`:                                                 "default-ring-size",
		`{"autoCreateQueues":false}`:                                             "auto-create-queues",
		`{"slowConsumerThreshold":1,"slowConsumerPolicy":"KILL"}`:                "slow-consumer-policy",
		`{"maxDeliveryAttempts":-1,"addressFullMessagePolicy":"FAIL"}`:           "",
		`{"slowConsumerThreshold":1,"slowConsumerPolicy":"NOTIFY"}`:              "",
		`{"autoDeleteQueues":true,"autoDeleteAddresses":true,"maxSizeBytes":-1}`: "",
	} {
		server.Manage(t, nil, "", "addAddressSettings(java.lang.String,java.lang.String)", match, settings)
		switch err := open(t, server.URL()); {
		case name == "" && err != nil:
			t.Errorf("with %s: %v", settings, err)
		case name != "" && (protocol.CodeOf(err) != protocol.CodeUnsupported || !strings.Contains(err.Error(), name+" is ")):
			t.Errorf("with %s: %v, which does not name %s", settings, err, name)
		}
		server.Manage(t, nil, "", "removeAddressSettings(java.lang.String)", match)
	}
}

// What is no Artemis, or does not let the mesh in, is refused with its address and
// without the password.
func TestNotReached(t *testing.T) {
	server := live.SharedArtemis(t)
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for what, reached := range map[string]struct {
		at   string
		code protocol.Code
	}{
		"a wrong password": {"stomp://waybill:s3cret@" + at.Host, protocol.CodeForbidden},
		"TLS":              {"stomps://waybill:s3cret@" + at.Host, protocol.CodeUnavailable},
		"nobody":           {"stomp://waybill:s3cret@127.0.0.1:1", protocol.CodeUnavailable},
		"silence":          {"stomp://waybill:s3cret@" + mute.Addr().String(), protocol.CodeUnavailable},
	} {
		host := reached.at[strings.LastIndex(reached.at, "@")+1:]
		if err := open(t, reached.at); protocol.CodeOf(err) != reached.code || !strings.Contains(err.Error(), host) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, at := range []string{"localhost", "amqp://localhost", "stomp://", "stomp://x:s3cret@ :1"} {
		if _, err := artemis.New(artemis.Options{URL: at}); protocol.CodeOf(err) != protocol.CodeInvalidArgs || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", at, err)
		}
	}
}
