package scope_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// pieces are what hostile names are put together from: every mark that a
// strategy or a broker gives a meaning to.
var pieces = []string{
	"a", "B", "0", "_", "-", "x1", "dlq", "DLQ", "retry", "5", "queue", "topic", "iii", "group", "observer", "observer:x",
	"observer:", "-dlq", ".dlq", ".retry.5", ".retry.", ".queue", "partition-0", "-partition-7", "exchange",
	".", "..", ":", "::", "@", "/", "//", "*", ">", "#", "$", " ", "\t", "\n", "\x00", "%2F", "ä", "日", "\xff", "\u202e", "",
}

func hostile() *rapid.Generator[string] {
	assembled := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8), func(parts []string) string {
		return strings.Join(parts, "")
	})
	long := rapid.Map(rapid.IntRange(60, 205), func(n int) string { return strings.Repeat("n", n) })
	return rapid.OneOf(assembled, assembled, rapid.String(), long)
}

// The rules as expressions, beside the checks that read byte by byte.
var (
	tokenRule    = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)
	routeRule    = regexp.MustCompile(`\A[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\z`)
	topicRule    = regexp.MustCompile(`\A[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*\z`)
	doubleRule   = regexp.MustCompile(`::`)
	placeRule    = regexp.MustCompile(`(\.dlq|-dlq|\.retry\.\d+)\z`)
	observerRule = regexp.MustCompile(`(\A|\.)observer:`)
)

func isRoute(s string) bool {
	return len(s) <= scope.MaxName && routeRule.MatchString(s) && !placeRule.MatchString(s)
}

func isID(s string) bool {
	return len(s) <= scope.MaxName && topicRule.MatchString(s) && !placeRule.MatchString(s) && !doubleRule.MatchString(s)
}

func TestNamesAgainstTheirRules(t *testing.T) {
	rules := []struct {
		what  string
		check func(string) error
		valid func(string) bool
	}{
		{"execution id", scope.CheckExecution, tokenRule.MatchString},
		{"id", scope.CheckToken, tokenRule.MatchString},
		{"namespace", scope.CheckNamespace, tokenRule.MatchString},
		{"route", scope.CheckRoute, isRoute},
		{"queue name", scope.CheckQueue, isRoute},
		{"topic", scope.CheckTopic, func(s string) bool { return isID(s) && !observerRule.MatchString(s) }},
		{"observer id", scope.CheckObserver, isID},
		{"group", scope.CheckGroup, isID},
		{"subscription name", scope.CheckSubscription, func(s string) bool {
			return len(s) <= scope.MaxName && topicRule.MatchString(s) && !doubleRule.MatchString(s)
		}},
		{"function id", scope.CheckFunction, func(s string) bool { return len(s) <= scope.MaxName && topicRule.MatchString(s) }},
	}
	for _, rule := range rules {
		t.Run(rule.what, rapid.MakeCheck(func(t *rapid.T) {
			name := hostile().Draw(t, "name")
			err := rule.check(name)
			if valid := rule.valid(name); valid != (err == nil) {
				t.Fatalf("%s %q: valid is %t, the check says %v", rule.what, name, valid, err)
			}
			if err == nil {
				return
			}
			if code := protocol.CodeOf(err); code != protocol.CodeInvalidName {
				t.Fatalf("%q is refused with %q", name, code)
			}
			if text := err.Error(); !strings.Contains(text, rule.what) || len(text) > 500 || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\x00") {
				t.Fatalf("the refusal does not fit on a line or does not say what it is about: %q", text)
			}
		}))
	}
}

func TestRefusalSaysWhichRule(t *testing.T) {
	cases := []struct {
		name string
		err  error
		says string
	}{
		{"empty", scope.CheckRoute(""), `route "" is empty`},
		{"space", scope.CheckRoute("a b"), `route "a b" has ' ' at byte 1: it is made of letters`},
		{"wildcard", scope.CheckExecution("*"), `execution id "*" has '*' at byte 0`},
		{"umlaut", scope.CheckTopic("bär"), `'ä' at byte 1`},
		{"newline", scope.CheckRoute("a\r\nb"), `"a\r\nb"`},
		{"invalid UTF-8", scope.CheckRoute("\xff"), `route "\xff" has`},
		{"empty token", scope.CheckRoute("a..b"), "empty token"},
		{"leading dot", scope.CheckRoute(".a"), "empty token"},
		{"trailing dot", scope.CheckRoute("a."), "empty token"},
		{"colon in a route", scope.CheckRoute("a:b"), `has ':' at byte 1`},
		{"double colon", scope.CheckTopic("a::b"), "only a function id"},
		{"dead letters", scope.CheckRoute("a.dlq"), ".retry.<number>"},
		{"Pulsar's dead letters", scope.CheckTopic("a-dlq"), ".retry.<number>"},
		{"retry", scope.CheckRoute("a.retry.1000"), ".retry.<number>"},
		{"observer's mark", scope.CheckTopic("a.observer:b"), "marks the queues of observers"},
		{"long execution", scope.CheckExecution(strings.Repeat("e", 65)), "is 65 bytes long, more than 64"},
		{"long route", scope.CheckRoute(strings.Repeat("r", 201)), `r"… is 201 bytes long, more than 200`},
		{"long and not ASCII", scope.CheckRoute(strings.Repeat("r", 79) + "ä"), `r"… has 'ä'`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
				t.Fatalf("got %v, want it to say %q", c.err, c.says)
			}
		})
	}
}

func TestNamesThatMayBe(t *testing.T) {
	for _, err := range []error{
		scope.CheckExecution(strings.Repeat("e", 64)),
		scope.CheckExecution("019ce6d0-7b1c-7000-8000-0123456789ab"),
		scope.CheckExecution("E-dlq"), // nothing follows an execution id directly
		scope.CheckRoute(strings.Repeat("r", 200)),
		scope.CheckRoute("scraping.tasks"),
		scope.CheckRoute("retry.5"),
		scope.CheckRoute("a.retry.x"),
		scope.CheckRoute("dlq"),
		scope.CheckTopic("orders:eu.created"),
		scope.CheckTopic("observer.x"),
		scope.CheckObserver("host:1.observer:2"),
		scope.CheckFunction("iii::queue::redrive"),
		scope.CheckFunction("archive-dlq"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// Names that begin like the diagnosis' are its own.
func TestReservedNames(t *testing.T) {
	for name, free := range map[string]bool{
		"run-1": true, "waybill-diagnosis": true, "my-waybill-diagnosis-x": true, "": true,
		"waybill-diagnosis-67c6f0a1-ABCDEFG234-0": true, "waybill-diagnosis-67c6f0a1-ABCDEFG234-12.3": true,
		"waybill-diagnosis-": false, "waybill-diagnosis-mine": false, "waybill-diagnosis-67c6f0a1-ABCDEFG234": false,
		"waybill-diagnosis-67c6f0a1-ABCDEFG234-0.mine": false, "waybill-diagnosis-67c6f0a1-ABCDEFG189-0": false,
	} {
		err := scope.CheckReserved(name)
		if free != (err == nil) || err != nil && protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("%q: %v", name, err)
		}
	}
}
