package scope

import (
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Pulsar names topics on Pulsar, where a queue is a topic with a shared
// subscription: persistent://<tenant>/<namespace>/queue:<execution>:<route>,
// …/topic:<topic>, …/observer:<topic>@<id>, …/group:<topic>@<group> and …/jobs:<named queue>, with
// -dlq behind it for dead letters. No slash is in the last part, which Pulsar
// does not allow there. Retries wait in the queue itself.
//
// A name ending in -partition-<number> is refused: Pulsar takes it for a part
// of another topic.
type Pulsar struct{ prefix string }

const (
	pulsarName      = "Pulsar"
	pulsarQueue     = "queue:"
	pulsarTopic     = "topic:"
	pulsarGroup     = "group:"
	pulsarJobs      = "jobs:"
	pulsarMember    = "@"
	pulsarPartition = "-partition-"
)

// Where names are on a Pulsar that was not told otherwise.
const (
	DefaultPulsarTenant    = "public"
	DefaultPulsarNamespace = "default"
)

// NewPulsar is the strategy for one namespace of Pulsar; "" is the default of
// each. Both are single tokens.
func NewPulsar(tenant, namespace string) (Pulsar, error) {
	if tenant == "" {
		tenant = DefaultPulsarTenant
	}
	if namespace == "" {
		namespace = DefaultPulsarNamespace
	}
	return Pulsar{prefix: "persistent://" + tenant + "/" + namespace + "/"}, firstError(CheckToken(tenant), CheckToken(namespace))
}

// Format implements Strategy.
func (p Pulsar) Format(n Name) (string, error) {
	if err := n.Check(); err != nil {
		return "", err
	}
	if n.Kind == KindListener {
		return "", unsupported(pulsarName, "raw subscriptions")
	}
	if n.DelayMs != 0 {
		return "", unsupported(pulsarName, "waiting retries")
	}
	local := pulsarLocal(n)
	if _, digits, found := cutLast(local, pulsarPartition); found && isNumber(digits) {
		return "", protocol.Errorf(protocol.CodeInvalidName, "%s ends in -partition-<number>, which Pulsar takes for a part of another topic", quoted(local))
	}
	if n.Dead {
		local += deadDash
	}
	return p.prefix + local, nil
}

func pulsarLocal(n Name) string {
	switch n.Kind {
	case KindQueue:
		return pulsarQueue + n.Execution + ":" + n.Route
	case KindJobs:
		return pulsarJobs + n.Route
	case KindObserver:
		return observerMark + n.Topic + pulsarMember + n.Member
	case KindGroup:
		return pulsarGroup + n.Topic + pulsarMember + n.Member
	default:
		return pulsarTopic + n.Topic
	}
}

// Parse implements Strategy.
func (p Pulsar) Parse(name string) (Name, error) { return parse(p, pulsarName, name, p.read) }

func (p Pulsar) read(name string) Name {
	local, dead := strings.CutSuffix(strings.TrimPrefix(name, p.prefix), deadDash)
	n := pulsarRead(local)
	n.Dead = dead
	return n
}

func pulsarRead(local string) Name {
	kind, rest, _ := strings.Cut(local, ":")
	switch kind + ":" {
	case pulsarQueue:
		execution, route, _ := strings.Cut(rest, ":")
		return QueueName(execution, route)
	case pulsarTopic:
		return TopicName(rest)
	case pulsarJobs:
		return JobsName(rest)
	case pulsarGroup:
		n, _ := cutMember(KindGroup, rest, pulsarMember)
		return n
	default:
		n, _ := cutMember(KindObserver, rest, pulsarMember)
		return n
	}
}
