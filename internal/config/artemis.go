package config

import (
	"encoding/json"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// DefaultSTOMPURL is where Artemis is by default.
const DefaultSTOMPURL = "stomp://localhost:61613"

// Artemis is the configuration of that adapter.
type Artemis struct {
	URL string `json:"url"`
}

// ArtemisOf reads it; false if another adapter is chosen.
func ArtemisOf(a protocol.Adapter) (Artemis, bool) {
	return configOf(AdapterArtemis, a, Artemis{URL: DefaultSTOMPURL})
}

func artemisKeys() []Key {
	return []Key{
		{Name: "url", Default: DefaultSTOMPURL, Check: addressOf(DefaultSTOMPURL, "stomp", "stomps"), Doc: "Where the STOMP acceptor of Artemis is, with user and password if it asks for them; stomps:// is TLS."},
		delayKey(),
	}
}

// artemisPlace is the broker: its names have no prefix.
func artemisPlace(config json.RawMessage) (string, error) {
	c, _ := ArtemisOf(protocol.Adapter{Name: AdapterArtemis, Config: config})
	server, _, err := serverOf("url", c.URL, "61613", "61613")
	return server, err
}
