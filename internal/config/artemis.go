package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/url"

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
	c := Artemis{URL: DefaultSTOMPURL}
	if a.Name != AdapterArtemis {
		return c, false
	}
	return c, len(a.Config) == 0 || json.Unmarshal(a.Config, &c) == nil
}

func artemisKeys() []Key {
	return []Key{
		{Name: "url", Default: DefaultSTOMPURL, Check: stompURL, Doc: "Where the STOMP acceptor of Artemis is, with user and password if it asks for them; stomps:// is TLS."},
		delayKey(),
	}
}

func stompURL(text string) error {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" || at.Scheme != "stomp" && at.Scheme != "stomps" {
		return fmt.Errorf("it is an address such as %s", DefaultSTOMPURL)
	}
	return nil
}

// artemisPlace is the broker: its names have no prefix.
func artemisPlace(config json.RawMessage) (string, error) {
	c, _ := ArtemisOf(protocol.Adapter{Name: AdapterArtemis, Config: config})
	at, err := url.Parse(c.URL)
	if err != nil {
		return "", protocol.Errorf(protocol.CodeInvalidArgs, "url is no address")
	}
	return fmt.Sprintf("%s://%s", at.Scheme, net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "61613"))), nil
}
