package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/url"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// DefaultRedisURL is where Redis is by default.
const DefaultRedisURL = "redis://localhost:6379"

// Redis is the configuration of that adapter.
type Redis struct {
	URL string `json:"redis_url"`
}

// RedisOf reads it; false if another adapter is chosen.
func RedisOf(a protocol.Adapter) (Redis, bool) {
	c := Redis{URL: DefaultRedisURL}
	if a.Name != AdapterRedis {
		return c, false
	}
	return c, len(a.Config) == 0 || json.Unmarshal(a.Config, &c) == nil
}

func redisKeys() []Key {
	return []Key{
		{Name: "redis_url", Default: DefaultRedisURL, Check: redisURL, Doc: "Where Redis is, with user and password if it asks for them; rediss:// is TLS."},
	}
}

func redisURL(text string) error {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" || at.Scheme != "redis" && at.Scheme != "rediss" {
		return fmt.Errorf("it is an address such as %s", DefaultRedisURL)
	}
	return nil
}

// redisPlace is the server: channels are the same in all of its databases.
func redisPlace(config json.RawMessage) (string, error) {
	c, _ := RedisOf(protocol.Adapter{Name: AdapterRedis, Config: config})
	at, err := url.Parse(c.URL)
	if err != nil {
		return "", protocol.Errorf(protocol.CodeInvalidArgs, "redis_url is no address")
	}
	return fmt.Sprintf("%s://%s", at.Scheme, net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "6379"))), nil
}
