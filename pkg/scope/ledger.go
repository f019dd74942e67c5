package scope

import "strings"

// Ledger names queues in the embedded transport: /queue/<execution>/<route>,
// /topic/<topic>, <topic>::observer:<id>, <topic>::@<group> and
// <topic>::listen:<subscription>, and /jobs/<name> for a named queue. Dead letters and waiting retries are kept in ledgers of their own under their queue's
// name, so they have no names here.
type Ledger struct{}

const ledgerName = "the embedded transport"

// Format implements Strategy.
func (Ledger) Format(n Name) (string, error) {
	if err := n.Check(); err != nil {
		return "", err
	}
	switch {
	case n.Dead:
		return "", unsupported(ledgerName, "dead letters")
	case n.DelayMs != 0:
		return "", unsupported(ledgerName, "waiting retries")
	case n.Kind == KindQueue:
		return ScopedName(n.Execution, n.Route), nil
	case n.Kind == KindJobs:
		return JobsPrefix + n.Route, nil
	case n.Kind == KindObserver:
		return n.Topic + memberMark + observerMark + n.Member, nil
	case n.Kind == KindGroup:
		return n.Topic + memberMark + groupMark + n.Member, nil
	case n.Kind == KindListener:
		return n.Topic + memberMark + listenMark + n.Member, nil
	default:
		return TopicPrefix + n.Topic, nil
	}
}

// Parse implements Strategy.
func (l Ledger) Parse(name string) (Name, error) { return parse(l, ledgerName, name, l.read) }

func (Ledger) read(name string) Name {
	if rest, ok := strings.CutPrefix(name, QueuePrefix); ok {
		execution, route, _ := strings.Cut(rest, "/")
		return QueueName(execution, route)
	}
	if topic, ok := strings.CutPrefix(name, TopicPrefix); ok {
		return TopicName(topic)
	}
	if queue, ok := strings.CutPrefix(name, JobsPrefix); ok {
		return JobsName(queue)
	}
	if n, ok := cutMember(KindGroup, name, memberMark+groupMark); ok {
		return n
	}
	if n, ok := cutMember(KindListener, name, memberMark+listenMark); ok {
		return n
	}
	n, _ := cutMember(KindObserver, name, memberMark+observerMark)
	return n
}

// SubscriberOf says whose queue of a topic this is in the embedded transport, an
// observer's, a group's or a listener's; false for any other queue.
func SubscriberOf(queue string) (Name, bool) {
	if !strings.Contains(queue, memberMark) {
		return Name{}, false
	}
	n, err := (Ledger{}).Parse(queue)
	return n, err == nil
}

// SubscribedTopic is the topic that such a queue receives; "" for any other.
func SubscribedTopic(queue string) string {
	n, _ := SubscriberOf(queue)
	return n.Topic
}
