package operate

import (
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Source is where messages are looked for: one queue, by its name in the mesh,
// or all that subscribe to a topic.
type Source struct{ Queue, Topic string }

// Sources are what a name stands for, in the order in which they are listed. A
// bare name, without slash and ::, is the named queue and the topic of that name;
// /topic/NAME is the topic alone, and anything else a queue as QueueName has it.
func Sources(name string) ([]Source, error) {
	if topic, ok := strings.CutPrefix(name, scope.TopicPrefix); ok {
		return []Source{{Topic: topic}}, scope.CheckTopic(topic)
	}
	if strings.Contains(name, "/") || strings.Contains(name, "::") {
		queue, err := QueueName(name)
		return []Source{{Queue: queue}}, err
	}
	topic := Source{Topic: name}
	if scope.CheckQueue(name) != nil { // a topic may have colons
		return []Source{topic}, scope.CheckTopic(name)
	}
	return []Source{{Queue: scope.JobsQueue(name)}, topic}, nil
}

// QueueName is a queue's name in the mesh: that of NAME, a named queue, of
// EXECUTION/ROUTE, or of what has its name already: /jobs/NAME,
// /queue/EXECUTION/ROUTE, and an observer's or a group's queue.
func QueueName(s string) (string, error) {
	if _, ok := scope.SubscriberOf(s); ok {
		return s, nil
	}
	if name, ok := strings.CutPrefix(s, scope.JobsPrefix); ok || !strings.ContainsAny(s, "/:") {
		return scope.JobsQueue(name), scope.CheckQueue(name)
	}
	execution, route, ok := strings.Cut(strings.TrimPrefix(s, scope.QueuePrefix), "/")
	if !ok {
		return "", protocol.Errorf(protocol.CodeInvalidArgs, "%.300q is neither a message id nor a queue: a queue is NAME, EXECUTION/ROUTE, TOPIC::observer:ID or TOPIC::@GROUP", s)
	}
	name := scope.ScopedName(execution, route)
	_, _, err := scope.ParseScoped(name)
	return name, err
}

// bareName is what a queue belongs to: the topic it receives, or its name as a
// named queue; a queue of an execution is itself.
func bareName(q *protocol.QueueInfo) string {
	if q.Topic != "" {
		return q.Topic
	}
	if name, ok := scope.NamedQueue(q.Queue); ok {
		return name
	}
	return q.Queue
}
