package fault_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

// Told twice to stop, `waybill work` does not wait for its handlers: it hands
// back what they hold, says goodbye and ends.
func TestASecondSignalSaysGoodbye(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	p := m.Spawn("work", "e", "r", "--drain", "10m", "--exec", "trap '' TERM INT; sleep 600")
	publish(t, c, "e", "r", nil)
	harness.Await(t, "the message to be handled", func() bool { return m.Queue("e", "r").InFlight == 1 })
	p.Interrupt()
	harness.Await(t, "it to take no more", func() bool { return strings.Contains(m.Run("subscription", "ls").Stdout, "draining") })
	p.Interrupt()
	if code := p.Exit(harness.Guard); code != 128+int(syscall.SIGINT) {
		t.Errorf("it ended with %d:\n%s", code, p.Output())
	}
	if q := m.Queue("e", "r"); q.Consumers != 0 || q.Ready != 1 || q.InFlight != 0 {
		t.Errorf("it left %+v", q)
	}
	if listed := m.Run("subscription", "ls").Stdout; !strings.Contains(listed, "nobody works here") {
		t.Errorf("it is still listed: %s", listed)
	}
}
