package brokers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestUnmet: a route leads registered subscribers and named queues to brokers that cannot
// do all they ask for. Whoever changes it is told, and so is who looks at them later, with
// the numbers that hold there.
func TestUnmet(t *testing.T) {
	t.Parallel()
	brokers := fmt.Sprintf("adapter: {name: builtin}\nbrokers:\n  far: %s\n  live: %s\n", kinds[len(kinds)-1].start(t), redis.start(t))
	m := harness.Start(t, "--config", harness.Configuration(t, brokers))
	c := m.Connect()
	handle := func(context.Context, *client.Delivery) error { return nil }
	harness.Work(t, c, "led", "tasks", handle, client.Backoff(3*backoff), client.MaxRetries(7))
	observe(t, c, "prices", handle, client.ID("audit"), client.MaxRetries(5))
	m.Run("queue", "define", "mail", "--backoff-ms", "70000", "--max-priority", "9")
	led := m.Apply(brokers + "routes:\n  - {pattern: /queue/led/**, broker: far}\n  - {pattern: /jobs/mail, broker: far}\n  - {pattern: /topic/prices, broker: live}\n")
	const (
		slower  = "/queue/led/tasks: the broker %s does not have a delay of one's own"
		urgent  = "max_priority 9 on /jobs/mail has no effect: the broker "
		retries = "prices::observer:audit: the broker %s does not have another try of a message that failed"
	)
	look := func(args ...string) string {
		t.Helper()
		out := m.Run(args...)
		if out.Code != 0 {
			t.Errorf("waybill %v: %+v", args, out)
		}
		return out.Stdout
	}
	on := func(text, broker string) string { return fmt.Sprintf(text, broker) }
	for what, c := range map[string]struct {
		says string
		want []string
	}{
		"the change":              {led.Stderr, []string{on(slower, "far"), on(retries, "live"), urgent + "far", "/jobs/mail: the broker far does not have a delay of one's own"}},
		"the log":                 {m.Process().Output(), []string{on(slower, "far")}},
		"a list of subscribers":   {look("subscription", "ls"), []string{on(slower, "far"), on(retries, "live"), backoff.String() + " always"}},
		"a list of observers":     {look("observer", "ls"), []string{on(retries, "live")}},
		"an observer":             {look("observer", "show", "prices::observer:audit"), []string{on(retries, "live")}},
		"a named queue":           {look("queue", "show", "mail"), []string{backoff.String() + " always", urgent + "far", "broker         far"}},
		"the diagnosis":           {look("diagnose"), []string{on(slower, "far"), on(retries, "live")}},
		"a definition over there": {m.Run("queue", "define", "mail", "--max-priority", "9").Stderr, []string{urgent + "far"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.says, want) {
				t.Errorf("%s does not tell %q:\n%s", what, want, c.says)
			}
		}
	}
	if text := look("subscription", "ls"); !strings.Contains(text, " 1 ") || !strings.Contains(text, " none ") {
		t.Errorf("what is on a broker without retries is listed as\n%s", text)
	}
}
