package operate

import (
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// QueueOrTopic tells a topic from a queue: it has neither a slash, but that of
// /topic/TOPIC, nor ::.
func QueueOrTopic(s string) (queue, topic string, err error) {
	if bare := strings.TrimPrefix(s, scope.TopicPrefix); !strings.Contains(bare, "/") && !strings.Contains(bare, "::") {
		topic, err = scope.Topic(s)
		return "", topic, err
	}
	queue, err = QueueName(s)
	return queue, "", err
}

// QueueName is the ledger name of EXECUTION/ROUTE or /queue/EXECUTION/ROUTE, or
// that of an observer's or a group's queue, which it has already.
func QueueName(s string) (string, error) {
	if _, ok := scope.SubscriberOf(s); ok {
		return s, nil
	}
	execution, route, ok := strings.Cut(strings.TrimPrefix(s, scope.QueuePrefix), "/")
	if !ok {
		return "", protocol.Errorf(protocol.CodeInvalidArgs, "%.300q is neither a message id nor a queue: a queue is EXECUTION/ROUTE, TOPIC::observer:ID or TOPIC::@GROUP", s)
	}
	name := scope.ScopedName(execution, route)
	_, _, err := scope.ParseScoped(name)
	return name, err
}
