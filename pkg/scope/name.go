package scope

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Longest names, in bytes.
const (
	MaxToken = 64  // an execution id, a namespace, a worker's or a user's id
	MaxName  = 200 // a route, a topic, a queue's name, an id, a function id
)

// grammar says how one kind of name may look: tokens of letters, digits, _
// and -, and what may stand between and in them.
type grammar struct {
	what   string // how an error text calls it
	max    int    // bytes
	dots   bool   // several tokens, separated by dots
	colons bool   // : in a token
	double bool   // :: as well
	places bool   // may end like a broker's place for dead letters or retries
}

var (
	executionGrammar    = grammar{what: "execution id", max: MaxToken, places: true}
	tokenGrammar        = grammar{what: "id", max: MaxToken, places: true}
	namespaceGrammar    = grammar{what: "namespace", max: MaxToken, places: true}
	routeGrammar        = grammar{what: "route", max: MaxName, dots: true}
	queueGrammar        = grammar{what: "queue name", max: MaxName, dots: true}
	topicGrammar        = grammar{what: "topic", max: MaxName, dots: true, colons: true}
	observerGrammar     = grammar{what: "observer id", max: MaxName, dots: true, colons: true}
	groupGrammar        = grammar{what: "group", max: MaxName, dots: true, colons: true}
	subscriptionGrammar = grammar{what: "subscription name", max: MaxName, dots: true, colons: true, places: true}
	functionGrammar     = grammar{what: "function id", max: MaxName, dots: true, colons: true, double: true, places: true}
)

// CheckExecution refuses what is no execution id: [A-Za-z0-9_-]{1,64}.
func CheckExecution(id string) error { return executionGrammar.check(id) }

// CheckToken refuses what cannot be one token of a subject, such as a worker's
// or a user's id: [A-Za-z0-9_-]{1,64}.
func CheckToken(token string) error { return tokenGrammar.check(token) }

// CheckNamespace refuses what is no namespace of functions:
// [A-Za-z0-9_-]{1,64}.
func CheckNamespace(namespace string) error { return namespaceGrammar.check(namespace) }

// CheckRoute refuses what is no route: dot-separated tokens of [A-Za-z0-9_-],
// at most MaxName bytes, not ending in .dlq, -dlq or .retry.<number>. Route
// takes the other ways to write one as well.
func CheckRoute(route string) error { return routeGrammar.check(route) }

// CheckQueue refuses what is no name of a named queue; the rules are those of
// a route.
func CheckQueue(name string) error { return queueGrammar.check(name) }

// CheckTopic refuses what is no topic: the rules of a route, except that a
// token may have single colons. No token begins with observer:, which marks
// the queues of observers.
func CheckTopic(topic string) error {
	if err := topicGrammar.check(topic); err != nil {
		return err
	}
	if strings.HasPrefix(topic, observerMark) || strings.Contains(topic, "."+observerMark) {
		return topicGrammar.refuse(topic, "has a token that begins with observer:, which marks the queues of observers")
	}
	return nil
}

// CheckObserver refuses what is no observer id: the rules of a route, except
// that a token may have single colons.
func CheckObserver(id string) error { return observerGrammar.check(id) }

// CheckGroup refuses what is no consumer group; the rules are those of an
// observer id.
func CheckGroup(group string) error { return groupGrammar.check(group) }

// CheckSubscription refuses what is no name of a subscription: the rules of an
// observer id, and any ending.
func CheckSubscription(name string) error { return subscriptionGrammar.check(name) }

// CheckFunction refuses what is no function id: dot-separated tokens of
// [A-Za-z0-9_-] and colons, at most MaxName bytes.
func CheckFunction(id string) error { return functionGrammar.check(id) }

func (g grammar) check(name string) error {
	if at := g.stray(name); at >= 0 {
		r, _ := utf8.DecodeRuneInString(name[at:])
		return g.refuse(name, fmt.Sprintf("has %q at byte %d: %s", r, at, g.alphabet()))
	}
	switch {
	case name == "":
		return g.refuse(name, "is empty")
	case len(name) > g.max:
		return g.refuse(name, fmt.Sprintf("is %d bytes long, more than %d", len(name), g.max))
	case name[0] == '.', name[len(name)-1] == '.', strings.Contains(name, ".."):
		return g.refuse(name, "has an empty token: a dot stands between two others")
	case g.colons && !g.double && strings.Contains(name, "::"):
		return g.refuse(name, "has ::, which only a function id may")
	case !g.places && endsLikeAPlace(name):
		return g.refuse(name, "ends in .dlq, -dlq or .retry.<number>, where a broker keeps another queue's dead letters or retries")
	}
	return nil
}

// stray is the place of the first byte that the name may not have, or -1.
func (g grammar) stray(name string) int {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		case c == '.' && g.dots, c == ':' && g.colons:
		default:
			return i
		}
	}
	return -1
}

func (g grammar) alphabet() string {
	switch {
	case g.colons:
		return "it is made of letters, digits, _, -, : and dots between tokens"
	case g.dots:
		return "it is made of letters, digits, _, - and dots between tokens"
	default:
		return "it is made of letters, digits, _ and -"
	}
}

func (g grammar) refuse(name, fault string) error {
	return protocol.Errorf(protocol.CodeInvalidName, "%s %s %s", g.what, quoted(name), fault)
}

// endsLikeAPlace says whether a broker's own place could have the name.
func endsLikeAPlace(name string) bool {
	if strings.HasSuffix(name, deadDot) || strings.HasSuffix(name, deadDash) {
		return true
	}
	_, digits, found := cutLast(name, delayDot)
	return found && isNumber(digits)
}

// cutLast is strings.Cut around the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// quoted shows a name in an error text, whatever it is made of, cut to a
// length that fits one.
func quoted(name string) string {
	const most = 80
	if len(name) <= most {
		return fmt.Sprintf("%q", name)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return fmt.Sprintf("%q…", name[:cut])
}
