package config

import (
	"encoding/json"

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
	return configOf(AdapterRedis, a, Redis{URL: DefaultRedisURL})
}

func redisKeys() []Key {
	return []Key{
		{Name: "redis_url", Default: DefaultRedisURL, Check: addressOf(DefaultRedisURL, "redis", "rediss"), Doc: "Where Redis is, with user and password if it asks for them; rediss:// is TLS."},
	}
}

// redisPlace is the server: channels are the same in all of its databases.
func redisPlace(config json.RawMessage) (string, error) {
	c, _ := RedisOf(protocol.Adapter{Name: AdapterRedis, Config: config})
	server, _, err := serverOf("redis_url", c.URL, "6379", "6379")
	return server, err
}
