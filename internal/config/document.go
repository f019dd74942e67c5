package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Document is what somebody has set of a configuration: a tree of map[string]any,
// []any, string, int64, float64, bool and nil.
type Document map[string]any

// ParseDocument reads a JSON object; INVALID_ARGS if it is none.
func ParseDocument(data []byte) (Document, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil || d.More() {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the configuration is %.64q: it is a JSON object", data)
	}
	plain, err := plainMap(tree)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the configuration: %v", err)
	}
	return plain, nil
}

// JSON is the document as it is sent and stored.
func (d Document) JSON() json.RawMessage {
	if d == nil {
		return json.RawMessage("{}")
	}
	data, err := json.Marshal(map[string]any(d))
	if err != nil { // nothing in it can fail
		panic(err)
	}
	return data
}

// Merge is the document with a change: an object of it changes the keys that it
// has, null takes a key out, and anything else stands in its place (a JSON merge
// patch). Where the change names another adapter, nothing is left of the
// configuration of the one before.
func (d Document) Merge(change Document) Document {
	base := maps.Clone(map[string]any(d))
	for _, k := range Keys() {
		if value, isSet := base[k.Name]; isSet {
			base[k.Name] = k.rechosen(value, change[k.Name])
		}
	}
	return mergedMap(base, change)
}

// rechosen is the value of a key without the configurations that belong to what a
// change has chosen something else for.
func (k *Key) rechosen(value, change any) any {
	switch of, isMap := value.(map[string]any); {
	case k.Kind == Choice && k.chosen(value) != k.chosen(merged(value, change)):
		return merged(value, map[string]any{choiceConfig: nil})
	case k.Kind == Named && k.Choices != nil && isMap:
		of = maps.Clone(of)
		changes, _ := change.(map[string]any)
		for name, inner := range of {
			of[name] = k.entry().rechosen(inner, changes[name])
		}
		return of
	}
	return value
}

func merged(into, change any) any {
	switch changes, isMap := change.(map[string]any); {
	case isMap:
		old, _ := into.(map[string]any)
		return mergedMap(old, changes)
	case change == nil:
		return into
	default:
		return change
	}
}

func mergedMap(old, changes map[string]any) map[string]any {
	out := make(map[string]any, len(old)+len(changes))
	maps.Copy(out, old)
	for key, value := range changes {
		if value == nil {
			delete(out, key)
			continue
		}
		out[key] = merged(out[key], value)
	}
	return out
}

// chosen is the choice in force: the default if none was made, "" if what was is
// none.
func (k *Key) chosen(value any) string {
	of, _ := value.(map[string]any)
	name, isText := of[choiceName].(string)
	if !isText {
		name, _ = k.Default.(string)
	}
	resolved, known := k.resolved(name)
	if !known {
		return ""
	}
	return resolved
}

// plain is a decoded value as documents have it.
func plain(value any) (any, error) {
	switch v := value.(type) {
	case nil, string, bool, int64:
		return v, nil
	case int:
		return int64(v), nil
	case uint64:
		return nil, fmt.Errorf("%d is too large a number", v)
	case float64:
		return whole(v), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("%s is too large a number", v)
		}
		return whole(f), nil
	case map[string]any:
		return plainMapAny(v)
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			var err error
			if out[i], err = plain(inner); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return nil, fmt.Errorf("%v is no value of a configuration: put text in quotes", v)
	}
}

func plainMapAny(m map[string]any) (any, error) {
	out, err := plainMap(m)
	return out, err
}

func plainMap(m map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(m))
	for key, inner := range m {
		value, err := plain(inner)
		if err != nil {
			return nil, err
		}
		out[key] = value
	}
	return out, nil
}

// whole is a number as an int64 if it is one.
func whole(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return f
}
