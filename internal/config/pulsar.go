package config

import (
	"encoding/json"

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
	return configOf(AdapterPulsar, a, Pulsar{
		URL: DefaultPulsarURL, AdminURL: DefaultPulsarAdminURL, DelayMs: DefaultPulsarDelayMs,
		Tenant: scope.DefaultPulsarTenant, Namespace: scope.DefaultPulsarNamespace,
	})
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

// pulsarPlace is the namespace.
func pulsarPlace(config json.RawMessage) (string, error) {
	c, _ := PulsarOf(protocol.Adapter{Name: AdapterPulsar, Config: config})
	server, _, err := serverOf("url", c.URL, "6650", "6651")
	if err != nil {
		return "", err
	}
	return server + "/" + c.Tenant + "/" + c.Namespace, nil
}
