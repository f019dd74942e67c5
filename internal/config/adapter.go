package config

import (
	"encoding/json"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Builtin is the configuration of the adapter that needs no broker.
type Builtin struct {
	StoreMethod string `json:"store_method"`
	FilePath    string `json:"file_path"`
}

// InMemory says whether messages are kept in memory alone.
func (b Builtin) InMemory() bool { return b.StoreMethod == StoreMemory }

// RabbitMQ is the configuration of that adapter.
type RabbitMQ struct {
	AMQPURL string `json:"amqp_url"`
	Prefix  string `json:"prefix"`
}

// RabbitMQOf reads it; false if another adapter is chosen.
func RabbitMQOf(a protocol.Adapter) (RabbitMQ, bool) {
	r := RabbitMQ{AMQPURL: DefaultAMQPURL}
	if a.Name != AdapterRabbitMQ {
		return r, false
	}
	return r, len(a.Config) == 0 || json.Unmarshal(a.Config, &r) == nil
}

// BuiltinOf reads it; the zero value if another adapter is chosen.
func BuiltinOf(a protocol.Adapter) Builtin {
	var b Builtin
	if a.Name == AdapterBuiltin && json.Unmarshal(a.Config, &b) != nil {
		return Builtin{}
	}
	return b
}
