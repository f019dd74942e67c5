package scope

import (
	"context"
	"strings"
)

// Queue is what the scope needs of something that queues messages. Names are
// those of package scope; a handler's error decides what becomes of the
// delivery.
type Queue interface {
	Publish(ctx context.Context, name string, message Message) error
	// Subscribe hands deliveries to handle until the subscription is stopped.
	Subscribe(ctx context.Context, name string, who Subscriber, handle Handler) (Subscription, error)
}

// Message is a payload and its headers.
type Message struct {
	Headers map[string][]string
	Data    []byte
}

// Subscriber says who subscribes.
type Subscriber struct {
	// Name is for people; Scoped adds the beginning of the execution id.
	Name string
	// Execution is the whole execution id, set by Scoped: what must be unique
	// among executions uses it.
	Execution string
}

// Handler handles one delivery.
type Handler func(ctx context.Context, message Message) error

// Subscription is a subscriber's consumer.
type Subscription interface {
	// Stop ends the subscription and waits for its handlers, at most until ctx
	// ends.
	Stop(ctx context.Context) error
}

// Scoped is q as one execution sees it: queue names become the execution's
// own, both where it publishes and where it subscribes, and its subscriptions
// carry its id. Topics (/topic/…) are shared and pass as they are. Names that
// break a rule, or belong to another execution, are refused with INVALID_NAME
// before q sees them.
func Scoped(q Queue, execution string) (Queue, error) {
	if err := CheckExecution(execution); err != nil {
		return nil, err
	}
	return scoped{queue: q, execution: execution}, nil
}

type scoped struct {
	queue     Queue
	execution string
}

func (s scoped) Publish(ctx context.Context, name string, message Message) error {
	name, err := s.rewrite(name)
	if err != nil {
		return err
	}
	return s.queue.Publish(ctx, name, message)
}

func (s scoped) Subscribe(ctx context.Context, name string, who Subscriber, handle Handler) (Subscription, error) {
	name, err := s.rewrite(name)
	if err != nil {
		return nil, err
	}
	if err := CheckSubscription(who.Name); err != nil {
		return nil, err
	}
	who.Name, who.Execution = SubscriptionName(who.Name, s.execution), s.execution
	return s.queue.Subscribe(ctx, name, who, handle)
}

func (s scoped) rewrite(name string) (string, error) {
	if strings.HasPrefix(name, TopicPrefix) {
		topic, err := Topic(name)
		return TopicPrefix + topic, err
	}
	route, err := Route(s.execution, name)
	return ScopedName(s.execution, route), err
}
