package config

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Redacted is a JSON value without the passwords in its URLs, and those that are
// values of their own.
func Redacted(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return data
	}
	var value any
	if json.Unmarshal(data, &value) != nil || !strings.Contains(string(data), "://") && !strings.Contains(string(data), secretKey) {
		return data
	}
	return raw(redacted(value))
}

// RedactDifference takes the secrets out of a difference.
func RedactDifference(d *protocol.ConfigDifference) {
	for _, value := range []*json.RawMessage{&d.Before, &d.After} {
		if *value != nil && strings.HasSuffix(d.Key, "."+secretKey) {
			*value = raw(hidden)
		}
		*value = Redacted(*value)
	}
}

const (
	secretKey = "password"
	hidden    = "xxxxx" // as net/url has it
)

func redacted(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if _, isText := inner.(string); isText && key == secretKey {
				v[key] = hidden
				continue
			}
			v[key] = redacted(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = redacted(inner)
		}
	case string:
		if u, err := url.Parse(v); err == nil && u.User != nil {
			return u.Redacted()
		}
	}
	return value
}
