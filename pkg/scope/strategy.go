package scope

import (
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Kind is what a broker name stands for.
type Kind string

// Kinds of names.
const (
	KindQueue    Kind = "queue"    // a route of an execution
	KindTopic    Kind = "topic"    // what is published to
	KindObserver Kind = "observer" // an observer's queue of a topic
	KindGroup    Kind = "group"    // the queue a group shares of a topic
	KindListener Kind = "listener" // the passing queue of a raw subscription to a topic
	KindJobs     Kind = "jobs"     // a named queue of the whole mesh
)

// Name is what a name on a broker stands for: a queue, a topic, or a place
// beside a queue for its dead letters or for retries that wait.
type Name struct {
	Kind      Kind
	Execution string // of a queue
	Route     string // of a queue; the name of a named queue
	Topic     string // of a topic, an observer, a group or a listener
	Member    string // the observer's id, the group's name or the listener's subscription
	Dead      bool   // the queue's dead letters
	DelayMs   int64  // retries of the queue that wait this long, in milliseconds
}

// QueueName names a route of an execution.
func QueueName(execution, route string) Name {
	return Name{Kind: KindQueue, Execution: execution, Route: route}
}

// JobsName names a named queue.
func JobsName(queue string) Name { return Name{Kind: KindJobs, Route: queue} }

// TopicName names a topic.
func TopicName(topic string) Name { return Name{Kind: KindTopic, Topic: topic} }

// ObserverName names the queue of an observer.
func ObserverName(topic, id string) Name {
	return Name{Kind: KindObserver, Topic: topic, Member: id}
}

// GroupName names the queue of a group.
func GroupName(topic, group string) Name {
	return Name{Kind: KindGroup, Topic: topic, Member: group}
}

// ListenerName names the queue of a raw subscription, by the subscription's id.
// Brokers have their own means for it; only a ledger has the name.
func ListenerName(topic, subscription string) Name {
	return Name{Kind: KindListener, Topic: topic, Member: subscription}
}

// DeadLetters names the place of n's dead letters.
func (n Name) DeadLetters() Name {
	n.Dead = true
	return n
}

// Delayed names the place where retries of n wait for the time.
func (n Name) Delayed(milliseconds int64) Name {
	n.DelayMs = milliseconds
	return n
}

// Check refuses with INVALID_NAME what names nothing: a part that breaks its
// rules or belongs to another kind, or a place beside what has none.
func (n Name) Check() error {
	var err error
	only := Name{Kind: n.Kind}
	switch n.Kind {
	case KindQueue:
		only.Execution, only.Route = n.Execution, n.Route
		err = firstError(CheckExecution(n.Execution), CheckRoute(n.Route))
	case KindJobs:
		only.Route = n.Route
		err = CheckQueue(n.Route)
	case KindTopic:
		only.Topic = n.Topic
		err = CheckTopic(n.Topic)
	case KindObserver:
		only.Topic, only.Member = n.Topic, n.Member
		err = firstError(CheckTopic(n.Topic), CheckObserver(n.Member))
	case KindGroup:
		only.Topic, only.Member = n.Topic, n.Member
		err = firstError(CheckTopic(n.Topic), CheckGroup(n.Member))
	case KindListener:
		only.Topic, only.Member = n.Topic, n.Member
		err = firstError(CheckTopic(n.Topic), CheckToken(n.Member))
	default:
		return protocol.Errorf(protocol.CodeInvalidName, "a name of kind %s: queue, topic, observer, group, listener and jobs are kinds", quoted(string(n.Kind)))
	}
	if err != nil {
		return err
	}
	if beside := n.Dead != (n.DelayMs > 0); beside && n.Kind != KindTopic {
		only.Dead, only.DelayMs = n.Dead, n.DelayMs
	}
	if n != only {
		return protocol.Errorf(protocol.CodeInvalidName, "a %s's name has parts that do not belong together: %+v", n.Kind, n)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Strategy maps names to what one broker calls them. Format and Parse are
// each other's inverse, so no two names are the same on the broker; both
// refuse with INVALID_NAME, and Format with UNSUPPORTED what the broker has no
// place for.
type Strategy interface {
	Format(name Name) (string, error)
	Parse(name string) (Name, error)
}

// Endings and marks. User names cannot have the endings, nor @, so what the
// mesh makes is always told apart.
const (
	deadDot      = ".dlq"
	deadDash     = "-dlq"
	delayDot     = ".retry."
	observerMark = "observer:"
	groupMark    = "@"
	listenMark   = "listen:"
	memberMark   = "::" // in a ledger, between a topic and what has a queue of it
)

// parse reads a broker's name and accepts only the one spelling that Format
// gives.
func parse(s Strategy, broker, name string, read func(string) Name) (Name, error) {
	n := read(name)
	if again, err := s.Format(n); err != nil || again != name {
		return Name{}, protocol.Errorf(protocol.CodeInvalidName, "%s is not one of the mesh's names on %s", quoted(name), broker)
	}
	return n, nil
}

// cutDelay takes .retry.<milliseconds> off a name; 0 when it is not there.
func cutDelay(name string) (rest string, milliseconds int64) {
	rest, digits, found := cutLast(name, delayDot)
	if !found {
		return name, 0
	}
	milliseconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return name, 0
	}
	return rest, milliseconds
}

// tooLong refuses a name that a broker has no room for.
func tooLong(broker, name string, most int) error {
	return protocol.Errorf(protocol.CodeInvalidName, "%s is %d bytes long on %s, which takes %d: shorten the user's part of it", quoted(name), len(name), broker, most)
}

// unsupported refuses a place that a broker does not have.
func unsupported(broker, place string) error {
	return protocol.Errorf(protocol.CodeUnsupported, "%s has no place of its own for %s", broker, place)
}

// cutMember splits a topic from what follows a mark.
func cutMember(kind Kind, s, mark string) (Name, bool) {
	topic, member, found := strings.Cut(s, mark)
	return Name{Kind: kind, Topic: topic, Member: member}, found
}
