package config_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// A mesh does not start without a broker that is to take messages, and says what to do
// about one that does not come back: that is done while it is stopped.
func TestBrokerThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	const noPlace = "amqp://127.0.0.1:1"
	m := harness.Start(t)
	if _, err := m.Connect().Publish(t.Context(), client.Queue("e", "r"), []byte("before")); err != nil {
		t.Fatal(err)
	}
	m.Terminate()
	m.Exit(harness.Guard)
	stopped := func(code int, args ...string) harness.Command {
		t.Helper()
		answer := m.Run(append([]string{"config", "--data", m.Data}, args...)...)
		if answer.Code != code {
			t.Errorf("config %v ends with %d, want %d: %s", args, answer.Code, code, answer.Stderr)
		}
		return answer
	}

	stopped(0, "apply", write(t, `{brokers: {gone: {name: rabbitmq, config: {amqp_url: "`+noPlace+`"}}}, routes: [{pattern: /queue/elsewhere/**, broker: gone}]}`))
	failing := harness.Up(t, m.Data)
	if code := failing.Exit(harness.Guard); code != 4 {
		t.Errorf("it ends with %d", code)
	}
	for _, part := range []string{"the broker gone at", "127.0.0.1:1", "have it drain", "waybill config apply, with --data"} {
		if said := failing.Output(); !strings.Contains(said, part) {
			t.Errorf("%q is not in what it says: %s", part, said)
		}
	}
	if shown := stopped(0, "show"); !strings.Contains(shown.Stdout, noPlace) {
		t.Errorf("the configuration is shown as %s", shown.Stdout)
	}
	if refused := stopped(2, "apply", write(t, "brokers: {gone: {state: draining}}")); !strings.Contains(refused.Stderr, "routes") {
		t.Errorf("with a route that leads there: %s", refused.Stderr)
	}
	if refused := stopped(4, "apply", write(t, "queue_configs: {some: {max_retries: 7}}")); !strings.Contains(refused.Stderr, "queue_configs") {
		t.Errorf("a definition: %s", refused.Stderr)
	}
	stopped(0, "apply", write(t, "{brokers: {gone: {state: draining}}, routes: []}"))

	m.RestartWith()
	if running := stopped(3, "show"); !strings.Contains(running.Stderr, "CONFLICT") {
		t.Errorf("of a mesh that runs: %s", running.Stderr)
	}
	if q := m.Queue("e", "r"); q.Ready != 1 {
		t.Errorf("what was there before: %+v", q)
	}
	if brokers := m.Run("broker", "ls"); !strings.Contains(brokers.Stdout, "draining") {
		t.Errorf("the brokers: %s", brokers.Stdout)
	}
}

// There is no configuration where there is no mesh, and none is made by looking.
func TestNoMeshIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := harness.Start(t)
	for range 2 {
		if answer := m.Run("config", "show", "--data", dir); answer.Code != 6 || !strings.Contains(answer.Stderr, dir) {
			t.Errorf("it answers %+v", answer)
		}
	}
}
