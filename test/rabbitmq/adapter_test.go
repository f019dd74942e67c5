package rabbitmq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// written is a configuration file with this text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waybill.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// traffic is what is published while a mesh's brokers change, by one publisher for
// each destination, and what became of it.
type traffic struct {
	t        *testing.T
	mu       sync.Mutex
	sent     map[string]int            // by destination
	ran      map[string]map[string]int // by destination and message
	last     map[string]int            // of each group, the last number
	brokers  map[string]bool           // that have taken publishes
	disorder []string

	publishers sync.WaitGroup
	stop       context.CancelFunc
}

const groups = 3

// begin publishes and handles until stop is called.
func begin(t *testing.T, m *harness.Mesh) *traffic {
	t.Helper()
	f := &traffic{t: t, sent: map[string]int{}, ran: map[string]map[string]int{}, last: map[string]int{}, brokers: map[string]bool{}}
	c := m.Connect()
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	work(t, c, "flow", "plain", f.handler("plain"), client.Concurrency(8))
	work(t, c, "flow", "turns", f.inTurn, client.FIFO(), client.Concurrency(4), client.Backoff(20*time.Millisecond))
	if _, err := c.Observe(t.Context(), "news", f.handler("news"), client.ID("reader")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Handle(t.Context(), "default", "do", func(ctx context.Context, _ []byte) ([]byte, error) {
		return nil, f.handler("jobs")(ctx, client.JobOf(ctx))
	}); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]client.Destination{
		"plain": client.Queue("flow", "plain"), "turns": client.Queue("flow", "turns"),
		"news": client.Topic("news"), "jobs": client.Job("default", "default", "do"),
	} {
		f.ran[name] = map[string]int{}
		f.publishers.Go(func() { f.publish(ctx, c, name, to) })
	}
	return f
}

// publish publishes numbers one after the other. What is refused, or not answered, is
// published again under the same id.
func (f *traffic) publish(ctx context.Context, c *client.Client, name string, to client.Destination) {
	for n := 0; ctx.Err() == nil; {
		id := fmt.Sprintf("%s-%d", name, n)
		opts := []client.PublishOption{client.DedupID(id)}
		if name == "turns" {
			opts = append(opts, client.InGroup(strconv.Itoa(n%groups)))
		}
		try, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		r, err := c.Publish(try, to, fmt.Appendf(nil, "%d", n), opts...)
		cancel()
		f.mu.Lock()
		if err == nil {
			n++
			f.sent[name] = n
			f.brokers[r.Broker] = true
		}
		f.mu.Unlock()
	}
}

func (f *traffic) handler(name string) client.Handler {
	return func(_ context.Context, d *client.Delivery) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ran[name][string(d.Data)]++
		return nil
	}
}

// inTurn notes what is not in the order of its group. Each twentieth fails at first.
func (f *traffic) inTurn(_ context.Context, d *client.Delivery) error {
	var n int
	if err := json.Unmarshal(d.Data, &n); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.Attempt == 1 && n%20 == 7 {
		return errors.New("not yet")
	}
	if last, had := f.last[d.Group]; had && n > last+groups {
		f.disorder = append(f.disorder, fmt.Sprintf("%d after %d", n, last))
	}
	f.last[d.Group] = n
	f.ran["turns"][string(d.Data)]++
	return nil
}

// more waits until so many more of each are published.
func (f *traffic) more(n int) {
	f.t.Helper()
	f.mu.Lock()
	from := maps.Clone(f.sent)
	f.mu.Unlock()
	harness.Await(f.t, "publishes", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name := range f.ran {
			if f.sent[name] < from[name]+n {
				return false
			}
		}
		return true
	})
}

// end stops publishing and waits until all of it was handled, once unless it may be
// twice, each group in order.
func (f *traffic) end(twice bool) {
	f.t.Helper()
	f.stop()
	f.publishers.Wait()
	harness.Await(f.t, "everything to be handled", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, n := range f.sent {
			if len(f.ran[name]) < n {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, ran := range f.ran {
		for id, n := range ran {
			if n > 1 && !twice {
				f.t.Errorf("%s: %s was handled %d times", name, id, n)
			}
		}
	}
	if len(f.disorder) > 0 {
		f.t.Errorf("out of order: %s", strings.Join(f.disorder, ", "))
	}
}

func apply(t *testing.T, m *harness.Mesh, text string) harness.Command {
	t.Helper()
	applied := m.Run("config", "apply", written(t, text))
	if applied.Code != 0 {
		t.Fatalf("applying\n%s: %+v", text, applied)
	}
	return applied
}

// brokersOf are the brokers of a mesh by name.
func brokersOf(t *testing.T, m *harness.Mesh) map[string]protocol.BrokerInfo {
	t.Helper()
	listed := m.Run("broker", "ls", "--json")
	var all []protocol.BrokerInfo
	if err := json.Unmarshal([]byte(listed.Stdout), &all); err != nil {
		t.Fatalf("%+v: %v", listed, err)
	}
	byName := map[string]protocol.BrokerInfo{}
	for _, b := range all {
		byName[b.Name] = b
	}
	return byName
}

// Messages move to a broker, to another and back while they are published and
// handled, and nothing is lost, handled twice or out of order. A broker that cannot be
// used changes nothing.
func TestTheAdapterOfARunningMesh(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	first, second := server.VirtualHost(t), server.VirtualHost(t)
	m := harness.Start(t)
	f := begin(t, m)
	f.more(20)
	refused := m.Run("config", "apply", configuration(t, "amqp://guest:s3cret@127.0.0.1:1/"))
	if refused.Code != 4 || !strings.Contains(refused.Stderr, "127.0.0.1:1") || strings.Contains(refused.Stderr, "s3cret") {
		t.Errorf("a broker that is not there: %+v", refused)
	}
	if b := brokersOf(t, m); len(b) != 1 || b["builtin"].Routes[0] != "**" {
		t.Errorf("after it there are %+v", b)
	}
	apply(t, m, fmt.Sprintf("adapter: {name: rabbitmq, config: {amqp_url: %q}}", first))
	if r := publish(t, m.Connect(), client.Queue("run", "step"), "x"); r.Broker != "rabbitmq" {
		t.Errorf("then a publish goes to %s", r.Broker)
	}
	at, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	if password, is := at.User.Password(); shown(m) == "" || is && strings.Contains(shown(m), ":"+password+"@") {
		t.Errorf("it is shown as %s", shown(m))
	}
	f.more(50)
	apply(t, m, fmt.Sprintf(`
brokers:
  second: {name: rabbitmq, config: {amqp_url: %q}}
routes:
  - {pattern: /queue/flow/**, broker: second}
  - {pattern: /topic/*, broker: second}
  - {pattern: /jobs/def*, broker: second}
`, second))
	if r := publish(t, m.Connect(), client.Queue("run", "step"), "y"); r.Broker != "rabbitmq" {
		t.Errorf("what no route names goes to %s", r.Broker)
	}
	f.more(50)
	unknown := m.Run("config", "apply", written(t, "routes: [{pattern: /jobs/*, broker: third}]"))
	if unknown.Code == 0 || !strings.Contains(unknown.Stderr, "routes.0.broker") {
		t.Errorf("a route to a broker that is not there: %+v", unknown)
	}
	if drained := m.Run("broker", "drain", "second"); drained.Code == 0 || !strings.Contains(drained.Stderr, "routes.0.broker") {
		t.Errorf("draining what routes name: %+v", drained)
	}
	apply(t, m, fmt.Sprintf("adapter: {name: builtin}\nroutes: []\nbrokers: {second: {name: rabbitmq, state: draining, config: {amqp_url: %q}}}", second))
	f.more(50)
	f.end(false)
	for _, name := range []string{"builtin", "rabbitmq", "second"} {
		if !f.brokers[name] {
			t.Errorf("nothing was published to %s", name)
		}
	}
	// The first one has two messages of a route that nobody works on.
	if left := brokersOf(t, m)["rabbitmq"]; left.Ready != 2 || left.State != protocol.BrokerDraining || !left.Replaced {
		t.Errorf("of the adapter of before there is %+v", left)
	}
	kept := m.Run("broker", "retire", "rabbitmq")
	if kept.Code == 0 || !strings.Contains(kept.Stderr, "--force") {
		t.Errorf("retiring what is not empty: %+v", kept)
	}
	work(t, m.Connect(), "run", "step", func(context.Context, *client.Delivery) error { return nil })
	harness.Await(t, "the retirement of the adapter of before", func() bool {
		_, there := brokersOf(t, m)["rabbitmq"]
		return !there
	})
	harness.Await(t, "an empty broker to be retired", func() bool { return m.Run("broker", "retire", "second").Code == 0 })
	if b := brokersOf(t, m); len(b) != 1 {
		t.Errorf("in the end there are %v", slices.Sorted(maps.Keys(b)))
	}
}

// A mesh that is killed while its messages move has them where they were or where they
// were to be, and in order.
func TestKilledWhileItMoves(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	one, two := server.VirtualHost(t), server.VirtualHost(t)
	m := harness.Start(t, harness.OnRabbitMQ(t, one)...)
	f := begin(t, m)
	f.more(20)
	for _, to := range []string{
		fmt.Sprintf("adapter: {name: rabbitmq, config: {amqp_url: %q}}", two),
		"adapter: {name: builtin}",
		fmt.Sprintf("adapter: {name: rabbitmq, config: {amqp_url: %q}}", one),
	} {
		f.more(20)
		file := written(t, to)
		moving := m.Spawn("config", "apply", file)
		f.more(5)
		m.Kill()
		moving.Kill()
		m.Restart()
		apply(t, m, to)
	}
	f.more(20)
	f.end(true)
	harness.Await(t, "the retirement of what was replaced", func() bool { return len(brokersOf(t, m)) == 2 })
}

// An active broker has to be there when a mesh starts; one that is drained has not.
func TestBrokersThatAreNotThere(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, "--config", written(t, "brokers: {gone: {name: rabbitmq, state: draining, config: {amqp_url: 'amqp://127.0.0.1:1/'}}}"))
	away := brokersOf(t, m)["gone"]
	if away.Away == "" || !strings.Contains(away.Place, "127.0.0.1:1") {
		t.Errorf("it is listed as %+v", away)
	}
	if r := m.Run("broker", "retire", "gone"); r.Code == 0 {
		t.Errorf("what nobody can look at is retired: %+v", r)
	}
	if r := m.Run("broker", "retire", "gone", "--force"); r.Code != 0 {
		t.Errorf("by force: %+v", r)
	}
	if _, there := brokersOf(t, m)["gone"]; there {
		t.Error("it is still there")
	}
}

func shown(m *harness.Mesh) string { return m.Run("config", "show").Stdout }
