package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Diff is what differs between two documents, by key, in the order of the
// alphabet. A key that is not set has no value.
func Diff(before, after Document) []protocol.ConfigDifference {
	return differences("", map[string]any(before), map[string]any(after))
}

func differences(at string, before, after any) []protocol.ConfigDifference {
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	if !wasMap && !isMap || before != nil && !wasMap || after != nil && !isMap {
		if reflect.DeepEqual(before, after) {
			return nil
		}
		return []protocol.ConfigDifference{{Key: at, Before: raw(before), After: raw(after)}}
	}
	if at != "" && len(was) == 0 && len(is) == 0 && wasMap != isMap { // an entry with nothing in it
		return []protocol.ConfigDifference{{Key: at, Before: raw(before), After: raw(after)}}
	}
	var all []protocol.ConfigDifference
	names := maps.Clone(was)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, differences(join(at, name), was[name], is[name])...)
	}
	return all
}

func raw(value any) json.RawMessage {
	if value == nil {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil { // nothing in a document can fail
		panic(err)
	}
	return data
}

// Overlap says whether two lists of differences concern the same key, or one
// that is in it.
func Overlap(a, b []protocol.ConfigDifference) bool {
	return slices.ContainsFunc(a, func(x protocol.ConfigDifference) bool {
		return slices.ContainsFunc(b, func(y protocol.ConfigDifference) bool {
			return x.Key == y.Key || strings.HasPrefix(x.Key, y.Key+".") || strings.HasPrefix(y.Key, x.Key+".")
		})
	})
}
