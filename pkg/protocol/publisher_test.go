package protocol_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// A publisher's name is the same behind its reply subject, as far as that has
// room for it, and the token is one that NATS takes.
func TestPublishersAreNamedByTheirReplySubjects(t *testing.T) {
	for name, want := range map[string]string{
		"orders-api":                  "orders-api",
		"host.example/program":        "host.example/program",
		"a b\tc*>~%41":                "a b\tc*>~%41",
		"größe":                       "größe",
		strings.Repeat("x", 200):      strings.Repeat("x", protocol.MaxPublisher),
		strings.Repeat(".", 33):       strings.Repeat(".", protocol.MaxPublisher/3),
		strings.Repeat("a", 95) + ".": strings.Repeat("a", 95),
	} {
		token := protocol.PublisherToken(name)
		if strings.ContainsAny(token, " \t.*>~") {
			t.Errorf("the token of %q is %q", name, token)
		}
		if got := protocol.PublisherName(protocol.PublisherOf("_INBOX.abc." + token + ".1-2~")); got != want {
			t.Errorf("%q is told as %q", name, got)
		}
	}
	for _, reply := range []string{"", "_INBOX.abc.1-2", "_INBOX.abc.by=x", "by=x.1", "_INBOX.by=" + strings.Repeat("x", 200) + ".1"} {
		if got := protocol.PublisherOf(reply); got != "" {
			t.Errorf("%q says that %q publishes", reply, got)
		}
	}
	if got := protocol.PublisherName("%zz"); got != "%zz" {
		t.Errorf("what cannot be read is told as %q", got)
	}
}
