package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
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
	r := RabbitMQ{AMQPURL: DefaultAMQPURL, MaxAttempts: protocol.DefaultMaxRetries, PrefetchCount: protocol.DefaultConcurrency}
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

// rabbitPlace is the virtual host and the prefix that names begin with.
func rabbitPlace(config json.RawMessage) (string, error) {
	c, _ := RabbitMQOf(protocol.Adapter{Name: AdapterRabbitMQ, Config: config})
	at, err := url.Parse(c.AMQPURL)
	if err != nil {
		return "", protocol.Errorf(protocol.CodeInvalidArgs, "amqp_url is no address")
	}
	port := cmp.Or(at.Port(), map[bool]string{true: "5671", false: "5672"}[at.Scheme == "amqps"])
	host := strings.TrimPrefix(strings.TrimPrefix(at.Path, "/"), "/") // the default one is called /, which is the same as none
	return fmt.Sprintf("%s://%s/%s (%s)", at.Scheme, net.JoinHostPort(at.Hostname(), port), host, cmp.Or(c.Prefix, scope.DefaultAMQPPrefix)), nil
}
