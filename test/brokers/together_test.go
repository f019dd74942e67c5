package brokers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/test/harness"
)

// backoff is the delay before a message's second attempt.
const backoff = 200 * time.Millisecond

// TestTogether: one mesh has queues, topics and named queues on every broker, by the
// patterns of their names, and what becomes of a message is the same everywhere.
func TestTogether(t *testing.T) {
	traces := harness.StartCollector(t)
	m := onAll(t)
	beside := func(name string, test func(t *testing.T, m *harness.Mesh)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, m.For(t))
		})
	}
	beside("Crashes", crashes) // which takes longest, most of it in waiting
	for _, k := range kinds {
		for place, walk := range map[string]func(*journey, kind){"Queue": (*journey).toQueue, "Topic": (*journey).toTopic, "Jobs": (*journey).toJobs} {
			beside(k.name+place, func(t *testing.T, m *harness.Mesh) {
				walk(&journey{T: t, mesh: m, client: m.Connect(), done: make(chan struct{})}, k)
			})
		}
	}
	beside("BareTopic", bareTopic)
	beside("Passing", passing)
	beside("OneTrace", func(t *testing.T, m *harness.Mesh) { oneTrace(t, m, traces) })
}

// journey is the life of one message: it fails, is rejected when it comes again, is a
// dead letter, and is handled once it is redriven.
type journey struct {
	*testing.T
	mesh   *harness.Mesh
	client *client.Client
	done   chan struct{}

	mu   sync.Mutex
	runs []string // generation and attempt
	last time.Time
}

func (j *journey) handle(_ context.Context, d *client.Delivery) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs = append(j.runs, fmt.Sprintf("%d/%d", d.Generation, d.Attempt))
	if d.Header("x-tenant") != "acme" || string(d.Data) != `{"n":1}` {
		j.Errorf("it has come to be %s, of the tenant %q", d.Data, d.Header("x-tenant"))
	}
	waited := time.Since(j.last)
	j.last = time.Now()
	switch {
	case d.Generation > 0:
		close(j.done)
		return nil
	case d.Attempt == 1:
		return errFails
	case waited < backoff:
		j.Errorf("it is tried again after %v", waited)
	}
	return client.Reject(errFails)
}

func (j *journey) toQueue(k kind) {
	harness.Work(j, j.client, k.execution(), "tasks", j.handle, k.waits(backoff)...)
	j.travel(k, client.Queue(k.execution(), "tasks"), scope.ScopedName(k.execution(), "tasks"))
}

func (j *journey) toTopic(k kind) {
	observe(j, j.client, k.topic(), j.handle, append(k.waits(backoff), client.ID("audit"))...)
	others := make(chan string, 10)
	observe(j, j.client, k.topic(), func(_ context.Context, d *client.Delivery) error {
		others <- string(d.Data)
		return nil
	}, client.Group("mail"))
	j.travel(k, client.Topic(k.topic()), k.topic()+"::observer:audit")
	harness.Receive(j, "the other subscriber's copy", others)
	if len(others) > 0 {
		j.Error("what failed for one has come to another again")
	}
}

func (j *journey) toJobs(k kind) {
	config := client.QueueConfig{Backoff: backoff}
	if k.oneDelay {
		config.Backoff = 0
	}
	untilDone(j, "the definition", func() error {
		_, err := j.client.Define(j.Context(), k.queue(), config)
		return err
	})
	function := "do::" + k.name
	untilDone(j, "the function", func() error {
		_, err := j.client.Handle(j.Context(), protocol.DefaultNamespace, function, func(ctx context.Context, _ []byte) ([]byte, error) {
			return nil, j.handle(ctx, client.JobOf(ctx))
		})
		return err
	})
	j.travel(k, client.Job(k.queue(), protocol.DefaultNamespace, function), scope.JobsQueue(k.queue()))
}

// travel publishes the message, which comes to a queue, and follows it.
func (j *journey) travel(k kind, to client.Destination, queue string) {
	j.Helper()
	r := publish(j, j.client, to, `{"n":1}`, client.Header("x-tenant", "acme"))
	if r.Broker != k.broker() {
		j.Errorf("it was taken by %s", r.Broker)
	}
	letter := deadLetter(j, j.mesh, queue, r.MessageID)
	if letter.Reason != protocol.ReasonRejected || letter.Error != errFails.Error() || letter.Attempts != 2 {
		j.Errorf("the dead letter is %+v", letter)
	}
	if n, err := j.mesh.Redrive(protocol.DeadActRequest{Queue: queue, MessageID: r.MessageID}); n != 1 || err != nil {
		j.Fatalf("%d are redriven: %v", n, err)
	}
	harness.Receive(j, "it to be handled", j.done)
	harness.Await(j, "its queue to be empty", func() bool {
		q := j.mesh.QueueNamed(queue)
		return q.Ready+q.InFlight+q.Waiting+q.Moving+q.Dead == 0 && q.Counters[protocol.CountAcknowledged] == 1
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if want := []string{"0/1", "0/2", "1/1"}; !slices.Equal(j.runs, want) {
		j.Errorf("it was handled %v, want %v", j.runs, want)
	}
}

// deadLetter waits for that of a message in a queue; "": in any.
func deadLetter(t testing.TB, m *harness.Mesh, queue, id string) (letter protocol.DeadLetter) {
	t.Helper()
	harness.Await(t, "the dead letter", func() bool {
		if queue != "" && m.QueueNamed(queue).Dead == 0 {
			return false
		}
		all := m.Dead(queue)
		at := slices.IndexFunc(all, func(l protocol.DeadLetter) bool { return l.MessageID == id })
		if at < 0 {
			return false
		}
		letter = all[at]
		return true
	})
	return letter
}

// bareTopic: the functions about dead letters cover, by the name of a topic, all that
// subscribe to it, on each broker; a place that does not exist has none, and to ask
// hurts nobody.
func bareTopic(t *testing.T, m *harness.Mesh) {
	c := m.Connect()
	call := func(function, format string, args ...any) string {
		t.Helper()
		answer, err := c.Call(t.Context(), "default", function, fmt.Appendf(nil, format, args...))
		if err != nil {
			t.Errorf("%s of %s: %v", function, args, err)
		}
		return string(answer)
	}
	runs := make(chan string, 10*len(kinds))
	for _, k := range kinds {
		topic := k.topic() + ".given.up"
		for _, id := range []string{"a", "b"} {
			observe(t, c, topic, func(_ context.Context, d *client.Delivery) error {
				if d.Generation == 0 {
					return client.Reject(errFails)
				}
				runs <- topic
				return nil
			}, client.ID(id))
		}
		publish(t, c, client.Topic(topic), "1")
	}
	for _, k := range kinds {
		topic := k.topic() + ".given.up"
		harness.Await(t, "both to have given it up", func() bool {
			return strings.Count(call(protocol.FunctionDLQMessages, `{"topic":%q}`, topic), `"payload":1`) == 2
		})
		for _, nothing := range []string{k.topic() + ".nothing", topic + "::observer:nobody"} {
			if got := call(protocol.FunctionDLQMessages, `{"topic":%q}`, nothing); got != "[]" {
				t.Errorf("in %s are %s", nothing, got)
			}
			if got := call(protocol.FunctionRedrive, `{"queue":%q}`, nothing); !strings.Contains(got, `"redriven":0`) {
				t.Errorf("of %s are redriven %s", nothing, got)
			}
		}
		if got := call(protocol.FunctionRedrive, `{"topic":%q}`, topic); !strings.Contains(got, `"redriven":2`) {
			t.Errorf("of %s are redriven %s", topic, got)
		}
	}
	for range 2 * len(kinds) {
		harness.Receive(t, "what was redriven", runs)
	}
}

// passing: what is published where nothing is kept reaches who is there, once.
func passing(t *testing.T, m *harness.Mesh) {
	c := m.Connect()
	observers := []string{"a", "b"}
	runs := make(chan int, 2*len(observers))
	for _, id := range observers {
		observe(t, c, redis.topic(), func(_ context.Context, d *client.Delivery) error {
			runs <- d.Attempt
			return errFails
		}, client.ID(id))
	}
	if r := publish(t, c, client.Topic(redis.topic()), "x"); r.Broker != redis.broker() || r.Durability != protocol.DurabilityNone || r.Listeners != len(observers) {
		t.Errorf("the receipt is %+v", r)
	}
	for _, id := range observers {
		if attempt := harness.Receive(t, "an observer's copy", runs); attempt != 1 {
			t.Errorf("it came as attempt %d", attempt)
		}
		harness.Await(t, "the failure to be the end", func() bool {
			return m.QueueNamed(redis.topic() + "::observer:" + id).Counters[protocol.CountDiscarded] == 1
		})
	}
	if len(runs) > 0 {
		t.Error("what failed has come again")
	}
}

// crashes: on each broker that keeps messages one that kills whoever touches it is a dead
// letter in the end, at its first attempt, and its neighbours are handled.
func crashes(t *testing.T, m *harness.Mesh) {
	c := m.Connect()
	spec := harness.WorkerSpec{URL: m.URL, Execution: kinds[0].execution(), Route: "deadly", Concurrency: 2}
	deadly := map[string]kind{}
	for n, k := range kinds {
		deadly[publish(t, c, client.Queue(k.execution(), spec.Route), harness.Hold).MessageID] = k
		if n > 0 {
			spec.Also = append(spec.Also, k.execution())
		}
	}
	heir := harness.StartWorker(t, spec)
	for n := range protocol.MaxVanished {
		w := heir
		for range kinds {
			if e := w.Delivery(); deadly[e.ID].name == "" || e.Attempt != 1 {
				t.Errorf("worker %d has %+v", n, e)
			}
		}
		for _, k := range kinds { // now that the mesh misses the worker before
			publish(t, c, client.Queue(k.execution(), spec.Route), "neighbour")
		}
		for _, k := range kinds {
			harness.Await(t, "the neighbour to be handled", func() bool {
				return m.Queue(k.execution(), spec.Route).Counters[protocol.CountAcknowledged] == uint64(n+1)
			})
		}
		heir = harness.StartWorker(t, spec)
		w.Kill()
	}
	for id, k := range deadly {
		if letter := deadLetter(t, m, scope.ScopedName(k.execution(), spec.Route), id); letter.Reason != protocol.ReasonVanished || letter.Attempts != 1 {
			t.Errorf("on %s the dead letter is %+v", k.broker(), letter)
		}
		if n := m.Queue(k.execution(), spec.Route).Counters; n[protocol.CountVanished] != protocol.MaxVanished || n[protocol.CountFailed] != 0 {
			t.Errorf("on %s counted are %v", k.broker(), n)
		}
	}
}

// oneTrace: a message leads to one on the next broker, and each of them fails, is
// dead and is redriven: all of it is in the trace in which the first was published.
func oneTrace(t *testing.T, m *harness.Mesh, traces *harness.Collector) {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled})
	c := m.Connect(client.TracerProvider(harness.TracerProvider(t)))
	arrived := make(chan *client.Receipt, len(kinds)+1)
	next := func(ctx context.Context, n int) error {
		to := client.Topic(redis.topic() + ".trace")
		if n < len(kinds) {
			to = client.Queue(kinds[n].execution(), "trace")
		}
		r, err := c.Publish(ctx, to, nil)
		if err == nil {
			arrived <- r
		}
		return err
	}
	for n, k := range kinds {
		harness.Work(t, c, k.execution(), "trace", func(ctx context.Context, d *client.Delivery) error {
			if in := trace.SpanContextFromContext(ctx).TraceID(); in != parent.TraceID() {
				t.Errorf("on %s attempt %d of generation %d is in the trace %s", k.broker(), d.Attempt, d.Generation, in)
			}
			switch {
			case d.Generation == 0 && d.Attempt == 1:
				return errFails
			case d.Generation == 0:
				return client.Reject(errFails)
			}
			return next(ctx, n+1)
		}, k.waits(backoff)...)
	}
	ended := make(chan string, len(kinds))
	observe(t, c, redis.topic()+".trace", func(_ context.Context, d *client.Delivery) error {
		ended <- d.ID
		return nil
	}, client.ID("end"))
	if err := next(trace.ContextWithSpanContext(t.Context(), parent), 0); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		r := harness.Receive(t, "a message on "+k.broker(), arrived)
		if r.Broker != k.broker() {
			t.Errorf("it is on %s, not on %s", r.Broker, k.broker())
		}
		queue := scope.ScopedName(k.execution(), "trace")
		deadLetter(t, m, queue, r.MessageID)
		if n, err := m.Redrive(protocol.DeadActRequest{Queue: queue, MessageID: r.MessageID}); n != 1 || err != nil {
			t.Fatalf("%d are redriven: %v", n, err)
		}
		checkSpans(t, traces, parent.TraceID().String(), r.MessageID, 3)
	}
	checkSpans(t, traces, parent.TraceID().String(), harness.Receive(t, "the end of the chain", ended), 1)
}

// checkSpans: a message's publish, its so many attempts below that, or more where the
// broker gives one again, and the handler below each of them are exported.
func checkSpans(t *testing.T, traces *harness.Collector, in, id string, attempts int) {
	t.Helper()
	of := func(name string, n int) (all []*harness.Span) {
		t.Helper()
		harness.Await(t, name+"of a message is exported", func() bool {
			all = slices.DeleteFunc(traces.Of(in, name), func(s *harness.Span) bool { return s.Attribute("messaging.message.id") != id })
			return len(all) >= n
		})
		return all
	}
	published, delivered := of("publish ", 1), map[string]bool{}
	for _, s := range of("deliver ", attempts) {
		delivered[s.ID] = s.Parent == published[0].ID
	}
	if len(published) != 1 || len(delivered) > attempts {
		t.Logf("%d publishes and %d attempts of %s are exported", len(published), len(delivered), id)
	}
	for _, s := range of("process ", attempts) {
		if !delivered[s.Parent] {
			t.Errorf("a handler's span is below %s, which is no attempt below the publish", s.Parent)
		}
	}
}
