package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/waybill-mq/waybill/pkg/scope"
)

// Place is where a message is: a queue or a topic. It is made once and used for
// all spans there.
type Place struct {
	name       string // of low cardinality, for span names
	attributes []attribute.KeyValue
}

// executionTemplate stands for the execution in the names of spans.
const executionTemplate = "{execution}"

// PlaceOf is the place of a queue, by the name it has in ledgers, or of a topic
// behind scope.TopicPrefix.
func PlaceOf(queue string) *Place {
	if n, ok := scope.SubscriberOf(queue); ok {
		return subscriberPlace(n)
	}
	p := &Place{name: queue, attributes: []attribute.KeyValue{system, semconv.MessagingDestinationName(queue)}}
	if _, route, err := scope.ParseScoped(queue); err == nil {
		p.name = scope.ScopedName(executionTemplate, route)
		p.attributes = append(p.attributes, semconv.MessagingDestinationTemplate(p.name))
	}
	return p
}

// subscriberPlace is the topic, seen by one that receives it.
func subscriberPlace(n scope.Name) *Place {
	p := &Place{name: scope.TopicPrefix + n.Topic}
	p.attributes = []attribute.KeyValue{system, semconv.MessagingDestinationName(p.name)}
	if n.Kind == scope.KindGroup {
		p.attributes = append(p.attributes, semconv.MessagingConsumerGroupName(n.Member))
	} else {
		p.attributes = append(p.attributes, semconv.MessagingDestinationSubscriptionName(n.Member))
	}
	return p
}

var system = semconv.MessagingSystemKey.String("waybill")
