package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Where Pulsar and its admin interface are by default, and how long a failed message
// waits there.
const (
	DefaultPulsarURL      = "pulsar://localhost:6650"
	DefaultPulsarAdminURL = "http://localhost:8080"
	DefaultPulsarDelayMs  = 1000
)

// Pulsar is the configuration of that adapter.
type Pulsar struct {
	URL       string `json:"url"`
	AdminURL  string `json:"admin_url"`
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"`
	DelayMs   int64  `json:"negative_ack_redelivery_delay_ms"`
}

// PulsarOf reads it; false if another adapter is chosen.
func PulsarOf(a protocol.Adapter) (Pulsar, bool) {
	c := Pulsar{
		URL: DefaultPulsarURL, AdminURL: DefaultPulsarAdminURL, DelayMs: DefaultPulsarDelayMs,
		Tenant: scope.DefaultPulsarTenant, Namespace: scope.DefaultPulsarNamespace,
	}
	if a.Name != AdapterPulsar {
		return c, false
	}
	return c, len(a.Config) == 0 || json.Unmarshal(a.Config, &c) == nil
}

func pulsarKeys() []Key {
	return []Key{
		{Name: "url", Default: DefaultPulsarURL, Check: addressOf(DefaultPulsarURL, "pulsar", "pulsar+ssl"), Doc: "Where Pulsar is, as pulsar://token:TOKEN@… if it asks for a token; pulsar+ssl:// is TLS."},
		{Name: "admin_url", Default: DefaultPulsarAdminURL, Check: addressOf(DefaultPulsarAdminURL, "http", "https"), Doc: "Where its admin interface is, which is asked with the same token."},
		{Name: "tenant", Default: scope.DefaultPulsarTenant, Check: scope.CheckToken, Doc: "The tenant of the namespace."},
		{Name: "namespace", Default: scope.DefaultPulsarNamespace, Check: scope.CheckToken, Doc: "The namespace that topics are in, which has to be there."},
		{
			Name: "negative_ack_redelivery_delay_ms", Kind: Number, Default: int64(DefaultPulsarDelayMs), Least: 1, Most: maxMillis,
			Doc: "How long every failed message waits before its next try, where delay is native.",
		},
		delayKey(),
	}
}

// addressOf refuses what is no address of these schemes.
func addressOf(example string, schemes ...string) func(text string) error {
	return func(text string) error {
		at, err := url.Parse(text)
		if err == nil && at.Hostname() != "" && slices.Contains(schemes, at.Scheme) {
			return nil
		}
		return fmt.Errorf("it is an address such as %s", example)
	}
}

// pulsarPlace is the namespace.
func pulsarPlace(config json.RawMessage) (string, error) {
	c, _ := PulsarOf(protocol.Adapter{Name: AdapterPulsar, Config: config})
	at, err := url.Parse(c.URL)
	if err != nil {
		return "", protocol.Errorf(protocol.CodeInvalidArgs, "url is no address")
	}
	port := map[bool]string{false: "6650", true: "6651"}[at.Scheme == "pulsar+ssl"]
	return fmt.Sprintf("%s://%s/%s/%s", at.Scheme, net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), port)), c.Tenant, c.Namespace), nil
}
