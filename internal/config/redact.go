package config

import (
	"encoding/json"
	"net/url"
	"strings"
)

// Redacted is a JSON value without the passwords in its URLs.
func Redacted(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return data
	}
	var value any
	if json.Unmarshal(data, &value) != nil || !strings.Contains(string(data), "://") {
		return data
	}
	return raw(redacted(value))
}

func redacted(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
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
