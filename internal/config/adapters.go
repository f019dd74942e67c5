package config

import (
	"encoding/json"
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// kind is what this version knows of one kind of adapter. How its broker is made is
// in the router's table of adapters, which has a row for each but the built-in one.
type kind struct {
	name string
	keys []Key // of its config
	// place says where the messages of a broker with this config are, for people
	// and without secrets: brokers with the same place are the same one. nil: in
	// the mesh.
	place func(config json.RawMessage) (string, error)
	// names says what the names of its queues begin with that no execution has; nil:
	// nothing of its config is in them.
	names func(config json.RawMessage) string
	// topicsOnly: it has no queues.
	topicsOnly bool
}

// adapters are the kinds there are, one row for each.
func adapters() []kind {
	return []kind{
		{name: AdapterBuiltin, keys: builtinKeys()},
		{name: AdapterRabbitMQ, keys: rabbitKeys(), place: rabbitPlace, names: rabbitPrefix},
		{name: AdapterArtemis, keys: artemisKeys(), place: artemisPlace},
		{name: AdapterPulsar, keys: pulsarKeys(), place: pulsarPlace},
		{name: AdapterRedis, keys: redisKeys(), place: redisPlace, topicsOnly: true},
	}
}

// adapterKeys are the keys of each kind of which wanted says so.
func adapterKeys(wanted func(k *kind) bool) map[string][]Key {
	all := map[string][]Key{}
	for _, k := range adapters() {
		if wanted(&k) {
			all[k.name] = k.keys
		}
	}
	return all
}

// anyKind and outside say which kinds a key may name.
func anyKind(*kind) bool { return true }

func outside(k *kind) bool { return k.place != nil }

// IsTopicsOnly says whether an adapter of that name has topics and no queues.
func IsTopicsOnly(name string) bool {
	return slices.ContainsFunc(adapters(), func(k kind) bool { return k.name == name && k.topicsOnly })
}

// IsOutside says whether messages of an adapter are on a broker outside of the mesh.
func IsOutside(a protocol.Adapter) bool {
	return slices.ContainsFunc(adapters(), func(k kind) bool { return k.name == a.Name && outside(&k) })
}

// PlaceOf says where an adapter's messages are: brokers with the same place are the
// same one. It has no secrets in it.
func PlaceOf(a protocol.Adapter) (string, error) {
	for _, k := range adapters() {
		if k.name == a.Name && outside(&k) {
			return k.place(a.Config)
		}
	}
	return "", protocol.Errorf(protocol.CodeInvalidArgs, "%.64q is no broker outside of the mesh", a.Name)
}

// SameNames says whether queues of two adapters of one kind are called the same, if they
// are on the same broker.
func SameNames(a, b protocol.Adapter) bool {
	for _, k := range adapters() {
		if k.name == a.Name && k.names != nil {
			return k.names(a.Config) == k.names(b.Config)
		}
	}
	return true
}
