// Package foreign_test runs workers in other languages, which were written from
// docs/protocol.md alone, on real meshes.
package foreign_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// order is what a message tells the driver's handler to do.
type order struct {
	Do        string `json:"do"`
	Name      string `json:"name"`
	Times     int    `json:"times,omitempty"`
	Outcome   string `json:"outcome,omitempty"`
	Until     string `json:"until,omitempty"`
	Execution string `json:"execution,omitempty"`
	Route     string `json:"route,omitempty"`
}

func publish(t *testing.T, c *client.Client, to client.Destination, o order) *client.Receipt {
	t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := c.Publish(t.Context(), to, body, client.Header("x-test", "of "+o.Name))
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// each runs a test for each language.
func each(t *testing.T, test func(t *testing.T, l *language)) {
	for i := range languages {
		l := &languages[i]
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

func counters(t *testing.T, m *harness.Mesh, execution, route string, want map[string]uint64) {
	t.Helper()
	harness.Await(t, "the queue has counted what happened", func() bool {
		got := m.Queue(execution, route).Counters
		for name, n := range want {
			if got[name] != n {
				return false
			}
		}
		return true
	})
}

// Each outcome has its consequence, tries are counted, and what is published
// from the other language arrives.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	each(t, func(t *testing.T, l *language) {
		m := m.For(t)
		c := m.Connect()
		d := l.start(t, options{NATS: m.URL, Execution: l.name, Topic: l.name + ".events", Observer: l.name, Window: 5})
		orders := client.Queue(l.name, "jobs")
		receipt := publish(t, c, orders, order{Do: "ok", Name: "good"})
		publish(t, c, orders, order{Do: "fail", Name: "flaky", Times: 2})
		publish(t, c, orders, order{Do: "fail", Name: "broken", Times: 9})
		publish(t, c, orders, order{Do: "reject", Name: "bad"})
		if e := d.started("good", 1); e.ID != receipt.MessageID || e.Header != "of good" {
			t.Errorf("the delivery is %+v, the message %s", e, receipt.MessageID)
		}
		d.ended("good", 1)
		d.ended("flaky", 3)
		d.started("broken", 3)
		counters(t, m, l.name, "jobs", map[string]uint64{"acknowledged": 2, "failed": 5, "rejected": 1})
		harness.Await(t, "two dead letters", func() bool { return m.Queue(l.name, "jobs").Dead == 2 })
		for _, letter := range m.Dead("/queue/" + l.name + "/jobs") {
			switch {
			case letter.Reason == protocol.ReasonRejected && letter.Error == "never" && letter.Attempts == 1:
			case letter.Reason == protocol.ReasonFailed && regexp.MustCompile("no luck$").MatchString(letter.Error) && letter.Attempts == 3:
			default:
				t.Errorf("dead letter %+v", letter)
			}
		}
		if n := d.starts("broken"); n != 3 {
			t.Errorf("a message that may fail three times was tried %d times", n)
		}

		if l.name == "python" {
			incompletes(t, m, c, d, l)
		}
		publishes(t, m, c, d, l)
		jobs(t, m, c, d, l)
		late(t, m, c, d, l)
	})
}

// incompletes has the driver answer neither yes nor no, twice for each outcome
// that says so: the message comes again and no try is spent.
func incompletes(t *testing.T, m *harness.Mesh, c *client.Client, d *driver, l *language) {
	t.Helper()
	outcomes := []string{"pending", "delivered", "expired", "of a later version"}
	for _, outcome := range outcomes {
		publish(t, c, client.Queue(l.name, "jobs"), order{Do: "incomplete", Name: outcome, Times: 2, Outcome: outcome})
	}
	for _, outcome := range outcomes {
		d.ended(outcome, 1)
		if n := d.starts(outcome); n != 3 {
			t.Errorf("after two answers %q it was called %d times", outcome, n)
		}
	}
	counters(t, m, l.name, "jobs", map[string]uint64{"incomplete": 8, "acknowledged": 6, "failed": 5})
	if q := m.Queue(l.name, "jobs"); q.Dead != 2 {
		t.Errorf("%d dead letters, and there were 2", q.Dead)
	}
}

// publishes has the driver publish twice with one id, and to a name that is
// refused.
func publishes(t *testing.T, m *harness.Mesh, c *client.Client, d *driver, l *language) {
	t.Helper()
	jobs := client.Queue(l.name, "jobs")
	publish(t, c, jobs, order{Do: "publish", Name: "first", Execution: l.name, Route: "results"})
	first := d.ended("first", 1)
	publish(t, c, jobs, order{Do: "publish", Name: "second", Execution: l.name, Route: "results"})
	second := d.ended("second", 1)
	if first.MessageID == "" || first.Duplicate || second.MessageID != first.MessageID || !second.Duplicate {
		t.Errorf("two publishes with one id were answered %+v and %+v", first, second)
	}
	if q := m.Queue(l.name, "results"); q.Ready != 1 {
		t.Errorf("%d messages are stored, want 1", q.Ready)
	}
	publish(t, c, jobs, order{Do: "publish", Name: "refused", Execution: l.name, Route: "results.dlq"})
	if e := d.ended("refused", 1); e.Code != string(protocol.CodeInvalidName) {
		t.Errorf("a publish to a bad name is answered with code %q", e.Code)
	}
}

// jobs has the driver define a queue and leave a job there for itself, and calls
// its function, from there and from here.
func jobs(t *testing.T, m *harness.Mesh, c *client.Client, d *driver, l *language) {
	t.Helper()
	orders, queue := client.Queue(l.name, "jobs"), l.name+"-turns"
	publish(t, c, orders, order{Do: "enqueue", Name: "outer", Execution: l.name, Route: queue})
	if e := d.ended("outer", 1); e.MessageID == "" || e.Duplicate {
		t.Errorf("a new queue and a job in it are answered %+v", e)
	}
	if e := d.ended("inner", 2); e.Receipt != "r-1" {
		t.Errorf("the job was %+v", e)
	}
	harness.Await(t, "the queue has counted what happened", func() bool {
		got := m.QueueNamed("/jobs/" + queue).Counters
		return got["failed"] == 1 && got["acknowledged"] == 1
	})
	publish(t, c, orders, order{Do: "call", Name: "caller", Execution: l.name})
	if e := d.ended("caller", 1); e.Header != "answered" {
		t.Errorf("a call is answered %+v", e)
	}
	if answer, err := c.Call(t.Context(), l.name, "driver::obey", []byte(`{"do":"answer","name":"called"}`)); err != nil || !regexp.MustCompile(`"header": ?"answered"`).Match(answer) {
		t.Errorf("a call from Go is answered %s, %v", answer, err)
	}
	if _, err := c.Call(t.Context(), l.name, "driver::obey", []byte(`{"do":"reject","name":"called"}`)); protocol.CodeOf(err) != protocol.CodeFunctionFailed {
		t.Errorf("a call that fails: %v", err)
	}
}

// late has a handler exceed its time limit and answer all the same: that has no
// effect but on the counters.
func late(t *testing.T, m *harness.Mesh, c *client.Client, d *driver, l *language) {
	t.Helper()
	publish(t, c, client.Queue(l.name, "hasty"), order{Do: "late", Name: "slow"})
	d.ended("slow", 2)
	d.ended("slow", 1)
	counters(t, m, l.name, "hasty", map[string]uint64{"failed": 1, "acknowledged": 1})
	harness.Await(t, "the late answer is counted", func() bool { return m.Stats()["router"].Counters["superseded"] > 0 })
}

// An observer has its own retries, and finds its backlog when it is back.
func TestObserver(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	each(t, func(t *testing.T, l *language) {
		m := m.For(t)
		c := m.Connect()
		o := options{NATS: m.URL, Execution: l.name, Topic: l.name + ".events", Observer: l.name + "-observer", Window: 5}
		d := l.start(t, o)
		topic := client.Topic(o.Topic)
		if r := publish(t, c, topic, order{Do: "fail", Name: "flaky", Times: 1}); r.Listeners != 1 {
			t.Errorf("%d observers", r.Listeners)
		}
		d.ended("flaky", 2)
		d.Terminate()
		if code := d.Exit(harness.Guard); code != 0 {
			t.Errorf("the driver ended with %d:\n%s", code, d.Output())
		}
		publish(t, c, topic, order{Do: "ok", Name: "backlog"})
		back := l.start(t, o)
		back.ended("backlog", 1)
		harness.Await(t, "nothing is left in its queue", func() bool {
			q := m.QueueNamed(o.Topic + "::observer:" + o.Observer)
			return q.Counters["acknowledged"] == 2 && q.Dead+q.Ready+q.Waiting+q.InFlight == 0
		})
	})
}

// What a worker holds that is stopped, or killed, is handled by another and has
// lost no try.
func TestEnds(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	each(t, func(t *testing.T, l *language) {
		m := m.For(t)
		c := m.Connect()
		never := filepath.Join(t.TempDir(), "never")
		o := options{NATS: m.URL, Execution: l.name, Topic: l.name + ".events", Observer: l.name, Window: 0.1}
		d := l.start(t, o)
		publish(t, c, client.Queue(l.name, "jobs"), order{Do: "hold", Name: "held", Until: never})
		d.started("held", 1)
		d.Terminate()
		if code := d.Exit(harness.Guard); code != 0 {
			t.Errorf("the driver ended with %d:\n%s", code, d.Output())
		}
		if q := m.Queue(l.name, "jobs"); q.Ready != 1 || q.Consumers != 0 {
			t.Errorf("after an orderly end the queue is %+v", q)
		}
		o.Observer += "-2"
		d = l.start(t, o)
		d.started("held", 1)
		d.Kill()
		o.Observer += "-3"
		d = l.start(t, o)
		d.started("held", 1)
		if err := os.WriteFile(never, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		d.ended("held", 1)
		counters(t, m, l.name, "jobs", map[string]uint64{"acknowledged": 1, "failed": 0, "vanished": 1})
	})
}

// A handler outlives a restart of the mesh: it runs once, and its answer counts.
func TestMeshRestarts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *language) {
		m := harness.Start(t)
		c := m.Connect()
		until := filepath.Join(t.TempDir(), "until")
		d := l.start(t, options{NATS: m.URL, Execution: l.name, Topic: l.name + ".events", Observer: l.name, Window: 5})
		jobs := client.Queue(l.name, "jobs")
		publish(t, c, jobs, order{Do: "hold", Name: "during", Until: until})
		d.started("during", 1)
		m.Kill()
		if err := os.WriteFile(until, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		d.ended("during", 1) // while there is no mesh
		m.Restart()
		counters(t, m, l.name, "jobs", map[string]uint64{"acknowledged": 1, "failed": 0})
		publish(t, c, jobs, order{Do: "ok", Name: "after"})
		d.ended("after", 1)
		if n := d.starts("during"); n != 1 {
			t.Errorf("the handler was begun %d times", n)
		}

		again := filepath.Join(t.TempDir(), "again")
		publish(t, c, jobs, order{Do: "hold", Name: "over", Until: again})
		d.started("over", 1)
		m.Kill()
		m.Restart()
		if err := os.WriteFile(again, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		d.ended("over", 1)
		counters(t, m, l.name, "jobs", map[string]uint64{"acknowledged": 3, "failed": 0})
		if n := d.starts("over"); n != 1 {
			t.Errorf("the handler was begun %d times", n)
		}
	})
}

// The examples do what they say.
func TestExamples(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *language) {
		m := harness.Start(t)
		cmd := l.command(t, "example")
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, "WAYBILL_NATS="+m.URL)
		p := harness.Program(t, "example", cmd)
		for _, line := range []string{`made a thumbnail of a\.png at try 1 of 3`, `made a thumbnail of b\.png at try 2 of 3`, `one more upload: a\.png`, `published gallery spring of ann\n(.*\n)*published gallery summer of ann`, `"published": ?"now"`} {
			p.Printed(regexp.MustCompile(line))
		}
		harness.Await(t, "a dead letter", func() bool { return m.Queue("run-1", "thumbnails").Dead == 1 })
		p.Terminate()
		if code := p.Exit(harness.Guard); code != 0 {
			t.Errorf("it ended with %d:\n%s", code, p.Output())
		}
		if n := m.Stats()["registry"].Gauges["workers"]; n != 0 {
			t.Errorf("%v workers are known after its end", n)
		}
	})
}
