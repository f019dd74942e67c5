package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/waybill-mq/waybill/pkg/scope"
)

// Place is where a message is: a queue or a topic. It is made once and used for
// all spans there.
type Place struct {
	names      []string // of spans, of low cardinality; one for each of operations
	attributes []attribute.KeyValue
}

func newPlace(name string, attributes ...attribute.KeyValue) *Place {
	p := &Place{names: make([]string, len(operations)), attributes: append(attributes, system)}
	for i, operation := range operations {
		p.names[i] = operation + " " + name
	}
	return p
}

// executionTemplate stands for the execution in the names of spans.
const executionTemplate = "{execution}"

// PlaceOf is the place of a queue, by the name it has in ledgers, or of a topic
// behind scope.TopicPrefix.
func PlaceOf(queue string) *Place {
	if n, ok := scope.SubscriberOf(queue); ok {
		return subscriberPlace(n)
	}
	destination := semconv.MessagingDestinationName(queue)
	if _, route, err := scope.ParseScoped(queue); err == nil {
		template := scope.ScopedName(executionTemplate, route)
		return newPlace(template, destination, semconv.MessagingDestinationTemplate(template))
	}
	return newPlace(queue, destination)
}

// subscriberPlace is the topic, seen by one that receives it.
func subscriberPlace(n scope.Name) *Place {
	topic := scope.TopicPrefix + n.Topic
	who := semconv.MessagingDestinationSubscriptionName(n.Member)
	if n.Kind == scope.KindGroup {
		who = semconv.MessagingConsumerGroupName(n.Member)
	}
	return newPlace(topic, semconv.MessagingDestinationName(topic), who)
}

var system = semconv.MessagingSystemKey.String("waybill")
