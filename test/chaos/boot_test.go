package chaos_test

import (
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

var silent = regexp.MustCompile("counts as gone")

// A service whose NATS is not there says so, with the address, and ends.
func TestWithoutNATSAServiceFailsAtItsStart(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var all []*harness.Process
	for _, service := range harness.Services {
		all = append(all, harness.Service(t, service, "--nats", "nats://me:secret@"+address, "--wait", "1s"))
	}
	for i, p := range all {
		if code := p.Exit(harness.Guard); code != 1 || !strings.Contains(p.Output(), address) || strings.Contains(p.Output(), "secret") {
			t.Errorf("%s ended with %d and says:\n%s", harness.Services[i], code, p.Output())
		}
	}
}

// Two instances of one name would take each other's work: the second waits for
// the end of the first and does not start beside it.
func TestANameBelongsToOneInstance(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, nil)
	for _, service := range harness.Services {
		checked(t, 0, "", service, "--nats", m.URL, "--name", service+"-1")
	}
	checked(t, 1, "no dlq dlq-2 is ready", "dlq", "--nats", m.URL, "--name", "dlq-2")
	second := harness.Service(t, "retry", "--nats", m.URL, "--name", "retry-1", "--drain", "1ms")
	if code := second.Exit(harness.Guard); code != 1 || !strings.Contains(second.Output(), "CONFLICT") {
		t.Errorf("it ended with %d and says:\n%s", code, second.Output())
	}
	third := harness.Service(t, "retry", "--nats", m.URL, "--name", "retry-1")
	third.Printed(regexp.MustCompile("waiting for its end"))
	m.Instance("retry-1").End()
	third.Printed(regexp.MustCompile("msg=serving"))
	third.Terminate()
	if code := third.Exit(harness.Guard); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	checked(t, 1, "no retry is ready", "retry", "--nats", m.URL)
}

// checked asks a service with --check.
func checked(t *testing.T, code int, says, service string, args ...string) {
	t.Helper()
	p := harness.Service(t, service, append(args, "--check")...)
	if got := p.Exit(harness.Guard); got != code || !strings.Contains(p.Output(), says) {
		t.Errorf("%s %v --check ended with %d, want %d with %q, and says:\n%s", service, args, got, code, says, p.Output())
	}
}
