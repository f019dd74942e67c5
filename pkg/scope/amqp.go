package scope

import (
	"strconv"
	"strings"
)

// AMQP names queues and exchanges on RabbitMQ. An execution's queue is
// queue:<execution>:<route>, a topic's exchange topic:<topic>; with the prefix
// iii, an observer's queue is iii.<topic>.observer:<id>.queue and a group's
// iii.<topic>.@<group>.queue; a named queue is iii.__fn_queue::<name>.queue, and
// its dead letters are in iii.__fn_queue::<name>::dlq.queue. Their dead letters end in .dlq instead, those of
// an execution's queue in .dlq as well, and retries wait in
// <queue>.retry.<milliseconds>.
//
// The parts that users name match [a-zA-Z0-9_\-.:]+; a queue's name leaves
// room for its .retry. place in the 255 bytes that AMQP takes.
type AMQP struct{ prefix string }

const (
	amqpName    = "RabbitMQ"
	amqpQueue   = "queue:"
	amqpTopic   = "topic:"
	amqpMember  = ".queue"
	amqpJobs    = "__fn_queue::" // between the prefix and a named queue's name
	amqpJobDead = "::dlq"
	amqpLongest = 255
	// amqpRoom is kept free behind a queue's name: .retry. and the most
	// digits milliseconds can have.
	amqpRoom = len(delayDot) + 19
)

// DefaultAMQPPrefix begins the names of observers' and groups' queues.
const DefaultAMQPPrefix = "iii"

// NewAMQP is the strategy for RabbitMQ with a prefix for observers' and
// groups' queues; "" is DefaultAMQPPrefix. The prefix follows the rules of a
// queue's name.
func NewAMQP(prefix string) (AMQP, error) {
	if prefix == "" {
		prefix = DefaultAMQPPrefix
	}
	return AMQP{prefix: prefix + "."}, CheckQueue(prefix)
}

// Format implements Strategy.
func (a AMQP) Format(n Name) (string, error) {
	if err := n.Check(); err != nil {
		return "", err
	}
	if n.Kind == KindListener {
		return "", unsupported(amqpName, "raw subscriptions")
	}
	base, end := a.base(n)
	if most := amqpLongest - amqpRoom; len(base+end) > most {
		return "", tooLong(amqpName, base+end, most)
	}
	switch {
	case n.Dead && n.Kind == KindJobs:
		return base + amqpJobDead + end, nil
	case n.Dead:
		return base + deadDot, nil
	case n.DelayMs != 0:
		return base + end + delayDot + strconv.FormatInt(n.DelayMs, 10), nil
	default:
		return base + end, nil
	}
}

// base is a queue's name in two parts, the second of which its dead letters
// have not.
func (a AMQP) base(n Name) (base, end string) {
	switch n.Kind {
	case KindQueue:
		return amqpQueue + n.Execution + ":" + n.Route, ""
	case KindJobs:
		return a.prefix + amqpJobs + n.Route, amqpMember
	case KindObserver:
		return a.prefix + n.Topic + "." + observerMark + n.Member, amqpMember
	case KindGroup:
		return a.prefix + n.Topic + "." + groupMark + n.Member, amqpMember
	default:
		return amqpTopic + n.Topic, ""
	}
}

// Parse implements Strategy.
func (a AMQP) Parse(name string) (Name, error) { return parse(a, amqpName, name, a.read) }

func (a AMQP) read(name string) Name {
	if rest, ok := strings.CutPrefix(name, a.prefix+amqpJobs); ok {
		return readJobs(rest)
	}
	name, dead := strings.CutSuffix(name, deadDot)
	name, delay := cutDelay(name)
	n := a.readQueue(name, dead)
	n.Dead, n.DelayMs = dead, delay
	return n
}

func (a AMQP) readQueue(name string, dead bool) Name {
	if rest, ok := strings.CutPrefix(name, amqpQueue); ok {
		execution, route, _ := strings.Cut(rest, ":")
		return QueueName(execution, route)
	}
	if topic, ok := strings.CutPrefix(name, amqpTopic); ok {
		return TopicName(topic)
	}
	rest := strings.TrimPrefix(name, a.prefix)
	if !dead {
		rest = strings.TrimSuffix(rest, amqpMember)
	}
	if n, ok := cutMember(KindGroup, rest, "."+groupMark); ok {
		return n
	}
	n, _ := cutMember(KindObserver, rest, "."+observerMark)
	return n
}

func readJobs(rest string) Name {
	rest, delay := cutDelay(rest)
	rest = strings.TrimSuffix(rest, amqpMember)
	queue, dead := strings.CutSuffix(rest, amqpJobDead)
	n := JobsName(queue)
	n.Dead, n.DelayMs = dead, delay
	return n
}
