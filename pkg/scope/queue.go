package scope

import (
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// What the names of queues and of topics begin with.
const (
	QueuePrefix = "/queue/"
	TopicPrefix = "/topic/"
	JobsPrefix  = "/jobs/" // of a named queue
)

// Route is the route that name means to an execution. A bare route, the route
// behind QueuePrefix and the execution's own scoped name all mean the same, so
// that a prefix is never put on twice. Another execution's queue is refused.
func Route(execution, name string) (string, error) {
	if err := CheckExecution(execution); err != nil {
		return "", err
	}
	route, prefixed := strings.CutPrefix(name, QueuePrefix)
	if owner, rest, scoped := strings.Cut(route, "/"); prefixed && scoped {
		if owner != execution {
			return "", protocol.Errorf(protocol.CodeInvalidName,
				"queue %s belongs to execution %s: execution %s names its own routes, or topics (%s…) to reach others",
				quoted(name), quoted(owner), quoted(execution), TopicPrefix)
		}
		route = rest
	}
	return route, CheckRoute(route)
}

// Topic is the topic that name means: a bare topic or one behind TopicPrefix.
func Topic(name string) (string, error) {
	topic := strings.TrimPrefix(name, TopicPrefix)
	return topic, CheckTopic(topic)
}

// JobsQueue is the name of a named queue in the mesh: /jobs/<name>. It does not
// check it.
func JobsQueue(name string) string { return JobsPrefix + name }

// NamedQueue is the inverse of JobsQueue; false for any other queue.
func NamedQueue(queue string) (name string, ok bool) {
	name, ok = strings.CutPrefix(queue, JobsPrefix)
	return name, ok && CheckQueue(name) == nil
}

// ScopedName is the name of an execution's queue: /queue/<execution>/<route>.
// It does not check either.
func ScopedName(execution, route string) string {
	return QueuePrefix + execution + "/" + route
}

// ParseScoped is the inverse of ScopedName; it refuses what is no name of an
// execution's queue.
func ParseScoped(name string) (execution, route string, err error) {
	rest, prefixed := strings.CutPrefix(name, QueuePrefix)
	execution, route, scoped := strings.Cut(rest, "/")
	if !prefixed || !scoped {
		return "", "", protocol.Errorf(protocol.CodeInvalidName, "%s is no queue of an execution: %s<execution>/<route> is", quoted(name), QueuePrefix)
	}
	if err := CheckExecution(execution); err != nil {
		return "", "", err
	}
	if err := CheckRoute(route); err != nil {
		return "", "", err
	}
	return execution, route, nil
}

// SubscriptionName is what people read: web-scraper in an execution that
// begins with 019ce6d0 is web-scraper:019ce6d0, and a shorter execution id
// stands whole. It is no identity, since ids made in the same minute may begin
// alike.
func SubscriptionName(name, execution string) string {
	return name + ":" + execution[:min(8, len(execution))]
}
