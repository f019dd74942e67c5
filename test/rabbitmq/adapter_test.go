package rabbitmq_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// Messages move to a broker, to another and back while they are published and
// handled, and nothing is lost, handled twice or out of order. A broker that cannot be
// used changes nothing.
func TestTheAdapterOfARunningMesh(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	first, second := server.VirtualHost(t), server.VirtualHost(t)
	m := harness.Start(t)
	f := harness.Begin(t, m)
	f.More(20)
	refused := m.Run("config", "apply", harness.OnRabbitMQ(t, "amqp://guest:s3cret@127.0.0.1:1/")[1])
	if refused.Code != 4 || !strings.Contains(refused.Stderr, "127.0.0.1:1") || strings.Contains(refused.Stderr, "s3cret") {
		t.Errorf("a broker that is not there: %+v", refused)
	}
	if b := m.Brokers(); len(b) != 1 || b["builtin"].Routes[0] != "**" {
		t.Errorf("after it there are %+v", b)
	}
	m.Apply(fmt.Sprintf("adapter: {name: rabbitmq, config: {amqp_url: %q}}", first))
	if r := harness.Publish(t, m.Connect(), client.Queue("run", "step"), "x"); r.Broker != "rabbitmq" {
		t.Errorf("then a publish goes to %s", r.Broker)
	}
	at, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	if password, is := at.User.Password(); shown(m) == "" || is && strings.Contains(shown(m), ":"+password+"@") {
		t.Errorf("it is shown as %s", shown(m))
	}
	turns := startTurns(t, m, first)
	f.More(50)
	m.Apply(fmt.Sprintf(`
brokers:
  second: {name: rabbitmq, config: {amqp_url: %q}}
routes:
  - {pattern: /queue/flow/**, broker: second}
  - {pattern: /queue/run/turns, broker: second}
  - {pattern: /topic/*, broker: second}
  - {pattern: /jobs/def*, broker: second}
`, second))
	if r := harness.Publish(t, m.Connect(), client.Queue("run", "step"), "y"); r.Broker != "rabbitmq" {
		t.Errorf("what no route names goes to %s", r.Broker)
	}
	turns.moved()
	f.More(50)
	unknown := m.Run("config", "apply", harness.Configuration(t, "routes: [{pattern: /jobs/*, broker: third}]"))
	if unknown.Code == 0 || !strings.Contains(unknown.Stderr, "routes.0.broker") {
		t.Errorf("a route to a broker that is not there: %+v", unknown)
	}
	if drained := m.Run("broker", "drain", "second"); drained.Code == 0 || !strings.Contains(drained.Stderr, "/queue/run/turns") {
		t.Errorf("draining what routes name: %+v", drained)
	}
	m.Apply(fmt.Sprintf("adapter: {name: builtin}\nroutes: []\nbrokers: {second: {name: rabbitmq, state: draining, config: {amqp_url: %q}}}", second))
	f.More(50)
	turns.end()
	f.End(false)
	for _, name := range []string{"builtin", "rabbitmq", "second"} {
		if !f.Took[name] {
			t.Errorf("nothing was published to %s", name)
		}
	}
	// The first one has two messages of a route that nobody works on.
	if left := m.Brokers()["rabbitmq"]; left.Ready != 2 || left.State != protocol.BrokerDraining || !left.Replaced {
		t.Errorf("of the adapter of before there is %+v", left)
	}
	kept := m.Run("broker", "retire", "rabbitmq")
	if kept.Code == 0 || !strings.Contains(kept.Stderr, "--force") {
		t.Errorf("retiring what is not empty: %+v", kept)
	}
	harness.Work(t, m.Connect(), "run", "step", func(context.Context, *client.Delivery) error { return nil })
	harness.Await(t, "the retirement of the adapter of before", func() bool {
		_, there := m.Brokers()["rabbitmq"]
		return !there
	})
	harness.Await(t, "an empty broker to be retired", func() bool { return m.Run("broker", "retire", "second").Code == 0 })
	if b := m.Brokers(); len(b) != 1 {
		t.Errorf("in the end there are %v", slices.Sorted(maps.Keys(b)))
	}
	m.Apply(fmt.Sprintf("brokers: {second: {name: rabbitmq, state: active, config: {amqp_url: %q}}}", server.VirtualHost(t)))
	if b := m.Brokers()["second"]; b.Queues != 0 || !b.Counted {
		t.Errorf("what is called like a retired broker is taken for it: %+v", b)
	}
}

// turns is a queue in order that moves while a program that knows RabbitMQ alone has its
// first message in hand: the broker that is left says then that nothing is in the queue.
type turns struct {
	t        *testing.T
	mesh     *harness.Mesh
	client   *client.Client
	stranger *amqp.Channel
	ran      chan string
}

func startTurns(t *testing.T, m *harness.Mesh, at string) *turns {
	t.Helper()
	s := &turns{t: t, mesh: m, client: m.Connect(), stranger: stranger(t, at), ran: make(chan string, 10)}
	harness.Publish(t, s.client, client.Queue("run", "turns"), "1")
	err := s.stranger.Qos(1, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := s.stranger.Consume("queue:run:turns", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	harness.Receive(t, "the stranger's message", taken)
	return s
}

// moved publishes to where the queue is now, and has it worked on.
func (s *turns) moved() {
	s.t.Helper()
	if r := harness.Publish(s.t, s.client, client.Queue("run", "turns"), "2"); r.Broker != "second" {
		s.t.Errorf("a queue that has moved is at %s", r.Broker)
	}
	harness.Work(s.t, s.client, "run", "turns", func(_ context.Context, d *client.Delivery) error {
		s.ran <- string(d.Data)
		return nil
	}, client.FIFO())
}

// end: what the stranger has given back comes before what was published after it.
func (s *turns) end() {
	s.t.Helper()
	if len(s.ran) > 0 {
		s.t.Errorf("%s runs while the one before it is in a stranger's hand", <-s.ran)
	}
	if err := s.stranger.Close(); err != nil {
		s.t.Fatal(err)
	}
	for _, want := range []string{"1", "2"} {
		if data := harness.Receive(s.t, "a message in its turn", s.ran); data != want {
			s.t.Errorf("%s runs, want %s", data, want)
		}
	}
}

// A mesh that is killed while its messages move has them where they were or where they
// were to be, and in order.
func TestKilledWhileItMoves(t *testing.T) {
	t.Parallel()
	server := live.SharedRabbitMQ(t)
	one, two := server.VirtualHost(t), server.VirtualHost(t)
	m := harness.Start(t, harness.OnRabbitMQ(t, one)...)
	f := harness.Begin(t, m)
	f.More(20)
	for _, to := range []string{
		fmt.Sprintf("adapter: {name: rabbitmq, config: {amqp_url: %q}}", two),
		"adapter: {name: builtin}",
		fmt.Sprintf("adapter: {name: rabbitmq, config: {amqp_url: %q}}", one),
	} {
		f.More(20)
		file := harness.Configuration(t, to)
		moving := m.Spawn("config", "apply", file)
		f.More(5)
		m.Kill()
		moving.Kill()
		m.Restart()
		m.Apply(to)
	}
	f.More(20)
	f.End(true)
	harness.Await(t, "the retirement of what was replaced", func() bool { return len(m.Brokers()) == 2 })
}

// An active broker has to be there when a mesh starts; one that is drained has not.
func TestBrokersThatAreNotThere(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, "--config", harness.Configuration(t, `brokers:
  gone: {name: rabbitmq, state: draining, config: {amqp_url: 'amqp://127.0.0.1:1/'}}
  out: {name: rabbitmq, state: draining, config: {amqp_url: 'amqp://127.0.0.1:2/'}}`))
	away := m.Brokers()["gone"]
	if away.Away == "" || !strings.Contains(away.Place, "127.0.0.1:1") {
		t.Errorf("it is listed as %+v", away)
	}
	if r := m.Run("broker", "retire", "gone"); r.Code == 0 {
		t.Errorf("what nobody can look at is retired: %+v", r)
	}
	if r := m.Run("broker", "retire", "gone", "--force"); r.Code != 0 {
		t.Errorf("by force: %+v", r)
	}
	if r := m.Run("config", "apply", "--replace", harness.Configuration(t, "adapter: {name: builtin}")); r.Code != 0 || !m.Brokers()["out"].Replaced {
		t.Errorf("one whose entry is taken out: %+v, of %v", r, m.Brokers())
	}
	if r := m.Run("broker", "retire", "out", "--force"); r.Code != 0 {
		t.Errorf("by force, without an entry: %+v", r)
	}
	if b := m.Brokers(); len(b) != 1 {
		t.Errorf("in the end there are %v", slices.Sorted(maps.Keys(b)))
	}
}

func shown(m *harness.Mesh) string { return m.Run("config", "show").Stdout }
