package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
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
	AMQPURL       string `json:"amqp_url"`
	Prefix        string `json:"prefix"`
	MaxAttempts   int    `json:"max_attempts"`
	PrefetchCount int    `json:"prefetch_count"`
	QueueMode     string `json:"queue_mode"`
	PriorityField string `json:"priority_field"`
}

// FIFO says whether subscribers that say no type have their messages in order.
// A mode that is not known is standard.
func (r RabbitMQ) FIFO() bool { return r.QueueMode == string(protocol.TypeFIFO) }

// RabbitMQOf reads it; false if another adapter is chosen.
func RabbitMQOf(a protocol.Adapter) (RabbitMQ, bool) {
	return configOf(AdapterRabbitMQ, a, RabbitMQ{AMQPURL: DefaultAMQPURL, MaxAttempts: protocol.DefaultMaxRetries, PrefetchCount: protocol.DefaultConcurrency})
}

// BuiltinOf reads it; the zero value if another adapter is chosen.
func BuiltinOf(a protocol.Adapter) Builtin {
	var b Builtin
	if a.Name == AdapterBuiltin && json.Unmarshal(a.Config, &b) != nil {
		return Builtin{}
	}
	return b
}

// rabbitPlace is the virtual host and the prefix that names begin with.
func rabbitPlace(config json.RawMessage) (string, error) {
	c, _ := RabbitMQOf(protocol.Adapter{Name: AdapterRabbitMQ, Config: config})
	server, path, err := serverOf("amqp_url", c.AMQPURL, "5672", "5671")
	if err != nil {
		return "", err
	}
	host := strings.TrimPrefix(strings.TrimPrefix(path, "/"), "/") // the default one is called /, which is the same as none
	return fmt.Sprintf("%s/%s (%s)", server, host, rabbitPrefix(config)), nil
}

// rabbitPrefix is what the names of observers' queues begin with.
func rabbitPrefix(config json.RawMessage) string {
	c, _ := RabbitMQOf(protocol.Adapter{Name: AdapterRabbitMQ, Config: config})
	return cmp.Or(c.Prefix, scope.DefaultAMQPPrefix)
}
