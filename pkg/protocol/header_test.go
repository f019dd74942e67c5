package protocol_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// reserved names, as the systems that obey them write them.
var reserved = []string{
	"x-delivery-attempt", "Status",
	"Waybill-Message-Id", "Waybill-Generation", "Waybill-Timeout-Ms", "Waybill-Max-Retries", "Waybill-Epoch", "Waybill-Outcome",
	"Waybill-Error", "Waybill-Anything",
	"Nats-Service-Error", "Nats-Service-Error-Code", "Nats-Rollup", "Nats-TTL", "Nats-Schedule", "Nats-Schedule-Target", "Nats-Expected-Last-Sequence",
	"Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Stream", "Nats-Expected-Last-Msg-Id", "Nats-Batch-Id", "Nats-Msg-Id-2",
	"CC", "BCC", "x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange",
	"x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count", "x-opt-deliver-by", "x-match",
	"AMQ_SCHEDULED_TIME", "AMQ_SCHEDULED_DELAY", "_AMQ_SCHED_DELIVERY", "_AMQ_GROUP_ID", "_AMQ_DUPL_ID", "AMQ-anything", "JMSXGroupID", "JMSExpiration",
	"destination", "destination-type", "receipt", "receipt-id", "transaction", "persistent", "selector", "content-length",
	"subscription", "message-id", "ack", "id", "expires", "priority", "redelivered", "session", "reply-to", "browser",
}

func TestReservedHeadersInEachCase(t *testing.T) {
	cases := map[string]func(string) string{
		"as it is": func(s string) string { return s },
		"lower":    strings.ToLower,
		"upper":    strings.ToUpper,
		"canonical": func(s string) string {
			return strings.ToUpper(s[:1]) + strings.ToLower(s[1:])
		},
		"alternating": func(s string) string {
			letters := []rune(s)
			for i, r := range letters {
				if letters[i] = unicode.ToLower(r); i%2 == 1 {
					letters[i] = unicode.ToUpper(r)
				}
			}
			return string(letters)
		},
	}
	for _, header := range reserved {
		for what, change := range cases {
			name := change(header)
			if !protocol.ReservedHeader(name) {
				t.Errorf("%s (%s) is not reserved", name, what)
			}
			err := protocol.CheckHeaders(map[string][]string{"x-tenant": {"a"}, name: {"1"}})
			if protocol.CodeOf(err) != protocol.CodeReservedHeader || !strings.Contains(err.Error(), name) {
				t.Errorf("%s (%s): %v", name, what, err)
			}
		}
	}
}

func TestHeadersThatBelongToThePublisher(t *testing.T) {
	headers := map[string][]string{}
	for _, name := range []string{
		"Nats-Msg-Id", "nats-msg-id", "x-correlation-id", "traceparent", "tracestate", "baggage", "Content-Type", "correlation-id", "x-tenant",
		"X-Attempt", "natural", "waybills", "ccc", "x-deaths", "idempotency", "jm", "empty", "!#$%&'*+-.^_`|~", "_underscore", "1",
	} {
		headers[name] = []string{"any: thing\tgoes, äöü \xff\x01"}
	}
	headers["empty"] = []string{""}
	if err := protocol.CheckHeaders(headers); err != nil {
		t.Error(err)
	}
	if err := protocol.CheckHeaders(nil); err != nil {
		t.Error(err)
	}
}

func TestHeadersThatAreRefused(t *testing.T) {
	cases := []struct {
		what    string
		headers map[string][]string
		code    protocol.Code
	}{
		{"no name", map[string][]string{"": {"1"}}, protocol.CodeInvalidArgs},
		{"CR in a name", map[string][]string{"a\rb": {"1"}}, protocol.CodeInvalidArgs},
		{"LF in a name", map[string][]string{"a\nNats-Rollup": {"all"}}, protocol.CodeInvalidArgs},
		{"NUL in a name", map[string][]string{"a\x00": {"1"}}, protocol.CodeInvalidArgs},
		{"colon in a name", map[string][]string{"a:b": {"1"}}, protocol.CodeInvalidArgs},
		{"space in a name", map[string][]string{"CC ": {"1"}}, protocol.CodeInvalidArgs},
		{"tab in a name", map[string][]string{"\tCC": {"1"}}, protocol.CodeInvalidArgs},
		{"control character in a name", map[string][]string{"CC\x01": {"1"}}, protocol.CodeInvalidArgs},
		{"space inside a name", map[string][]string{"a b": {"1"}}, protocol.CodeInvalidArgs},
		{"no-break space in a name", map[string][]string{"CC\u00a0": {"1"}}, protocol.CodeInvalidArgs},
		{"a name NATS clients do not send", map[string][]string{"a=b;c": {"1"}}, protocol.CodeInvalidArgs},
		{"a name that is not ASCII", map[string][]string{"ünïcode": {"1"}}, protocol.CodeInvalidArgs},
		{"space before a value", map[string][]string{"a": {" 1"}}, protocol.CodeInvalidArgs},
		{"tab after a value", map[string][]string{"a": {"1\t"}}, protocol.CodeInvalidArgs},
		{"CR in a value", map[string][]string{"a": {"1\r"}}, protocol.CodeInvalidArgs},
		{"LF in a value", map[string][]string{"a": {"1\nNats-Rollup: all"}}, protocol.CodeInvalidArgs},
		{"NUL in a value", map[string][]string{"a": {"\x00"}}, protocol.CodeInvalidArgs},
		{"two values", map[string][]string{"a": {"1", "2"}}, protocol.CodeInvalidArgs},
		{"no value", map[string][]string{"a": {}}, protocol.CodeInvalidArgs},
		{"too many bytes", map[string][]string{"a": {strings.Repeat("v", protocol.MaxHeaderBytes)}}, protocol.CodeLimitExceeded},
	}
	for _, c := range cases {
		if err := protocol.CheckHeaders(c.headers); protocol.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", c.what, err, c.code)
		}
	}
	if err := protocol.CheckHeaders(map[string][]string{"a": {strings.Repeat("v", protocol.MaxHeaderBytes-len("a")-4)}}); err != nil {
		t.Errorf("exactly as many bytes as may be: %v", err)
	}
}

// What passes the check can neither begin another header nor be read as one
// that is obeyed.
func FuzzCheckHeaders(f *testing.F) {
	f.Add("x-tenant", "a")
	f.Add("Nats-Rollup", "all")
	f.Add("a\r\nNats-Rollup", "all")
	f.Add("CC\v", "x")
	f.Fuzz(func(t *testing.T, name, value string) {
		err := protocol.CheckHeaders(map[string][]string{name: {value}})
		if err != nil {
			if protocol.CodeOf(err) == "" {
				t.Errorf("%q: %q is refused without a code: %v", name, value, err)
			}
			return
		}
		bare := strings.TrimFunc(name, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
		if strings.ContainsAny(name, "\r\n\x00:") || strings.ContainsAny(value, "\r\n\x00") || name == "" || protocol.ReservedHeader(bare) {
			t.Errorf("%q: %q passes", name, value)
		}
	})
}
