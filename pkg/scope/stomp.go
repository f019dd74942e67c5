package scope

import "strings"

// STOMP names destinations on Artemis: /queue/<execution>/<route>,
// /topic/<topic>, /queue/@observer/<topic>/<id>, /queue/@group/<topic>/<group> and
// /queue/@jobs/<named queue>;
// dead letters are in the same with .dlq behind it. Retries wait in the queue
// itself, scheduled by the broker.
type STOMP struct{}

const (
	stompName     = "Artemis"
	stompObserver = QueuePrefix + "@observer/"
	stompGroup    = QueuePrefix + "@group/"
	stompJobs     = QueuePrefix + "@jobs/"
)

// Format implements Strategy.
func (STOMP) Format(n Name) (string, error) {
	if err := n.Check(); err != nil {
		return "", err
	}
	if n.Kind == KindListener {
		return "", unsupported(stompName, "raw subscriptions")
	}
	if n.DelayMs != 0 {
		return "", unsupported(stompName, "waiting retries")
	}
	end := ""
	if n.Dead {
		end = deadDot
	}
	switch n.Kind {
	case KindQueue:
		return ScopedName(n.Execution, n.Route) + end, nil
	case KindJobs:
		return stompJobs + n.Route + end, nil
	case KindObserver:
		return stompObserver + n.Topic + "/" + n.Member + end, nil
	case KindGroup:
		return stompGroup + n.Topic + "/" + n.Member + end, nil
	default:
		return TopicPrefix + n.Topic, nil
	}
}

// Parse implements Strategy.
func (s STOMP) Parse(name string) (Name, error) { return parse(s, stompName, name, s.read) }

func (STOMP) read(name string) Name {
	if topic, ok := strings.CutPrefix(name, TopicPrefix); ok {
		return TopicName(topic)
	}
	name, dead := strings.CutSuffix(name, deadDot)
	n := stompQueue(name)
	n.Dead = dead
	return n
}

func stompQueue(name string) Name {
	if rest, ok := strings.CutPrefix(name, stompObserver); ok {
		n, _ := cutMember(KindObserver, rest, "/")
		return n
	}
	if rest, ok := strings.CutPrefix(name, stompGroup); ok {
		n, _ := cutMember(KindGroup, rest, "/")
		return n
	}
	if queue, ok := strings.CutPrefix(name, stompJobs); ok {
		return JobsName(queue)
	}
	execution, route, _ := strings.Cut(strings.TrimPrefix(name, QueuePrefix), "/")
	return QueueName(execution, route)
}
