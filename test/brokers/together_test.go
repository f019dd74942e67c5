package brokers_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// backoff is the delay before a message's second attempt.
const backoff = 200 * time.Millisecond

// TestTogether: one mesh has queues, topics and named queues on every broker, by the
// patterns of their names, and what becomes of a message is the same everywhere.
func TestTogether(t *testing.T) {
	m := onAll(t)
	t.Run("Places", func(t *testing.T) {
		for _, k := range kinds {
			for place, walk := range map[string]func(*journey, kind){"Queue": (*journey).toQueue, "Topic": (*journey).toTopic, "Jobs": (*journey).toJobs} {
				t.Run(k.name+place, func(t *testing.T) {
					t.Parallel()
					mesh := m.For(t)
					walk(&journey{T: t, mesh: mesh, client: mesh.Connect(), done: make(chan struct{})}, k)
				})
			}
		}
	})
	t.Run("OneTrace", func(t *testing.T) { oneTrace(t, m.For(t)) })
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
	harness.Work(j, j.client, k.execution(), "tasks", j.handle, client.Backoff(backoff))
	j.travel(k, client.Queue(k.execution(), "tasks"))
}

func (j *journey) toTopic(k kind) {
	if _, err := j.client.Observe(j.Context(), k.topic(), j.handle, client.ID("audit"), client.Backoff(backoff)); err != nil {
		j.Fatal(err)
	}
	others := make(chan string, 10)
	if _, err := j.client.Observe(j.Context(), k.topic(), func(_ context.Context, d *client.Delivery) error {
		others <- string(d.Data)
		return nil
	}, client.Group("mail")); err != nil {
		j.Fatal(err)
	}
	j.travel(k, client.Topic(k.topic()))
	harness.Receive(j, "the other subscriber's copy", others)
	if len(others) > 0 {
		j.Error("what failed for one has come to another again")
	}
}

func (j *journey) toJobs(k kind) {
	if _, err := j.client.Define(j.Context(), k.queue(), client.QueueConfig{Backoff: backoff}); err != nil {
		j.Fatal(err)
	}
	function := "do::" + k.name
	if _, err := j.client.Handle(j.Context(), protocol.DefaultNamespace, function, func(ctx context.Context, _ []byte) ([]byte, error) {
		return nil, j.handle(ctx, client.JobOf(ctx))
	}); err != nil {
		j.Fatal(err)
	}
	j.travel(k, client.Job(k.queue(), protocol.DefaultNamespace, function))
}

// travel publishes the message and follows it.
func (j *journey) travel(k kind, to client.Destination) {
	j.Helper()
	r := harness.Publish(j, j.client, to, `{"n":1}`, client.Header("x-tenant", "acme"))
	if r.Broker != k.broker() {
		j.Errorf("it was taken by %s", r.Broker)
	}
	letter := deadLetter(j, j.mesh, r.MessageID)
	if letter.Reason != protocol.ReasonRejected || letter.Error != errFails.Error() || letter.Attempts != 2 {
		j.Errorf("the dead letter is %+v", letter)
	}
	if n, err := j.mesh.Redrive(protocol.DeadActRequest{MessageID: r.MessageID}); n != 1 || err != nil {
		j.Fatalf("%d are redriven: %v", n, err)
	}
	harness.Receive(j, "it to be handled", j.done)
	harness.Await(j, "its queue to be empty", func() bool {
		q := j.mesh.QueueNamed(letter.Queue)
		return q.Ready+q.InFlight+q.Waiting+q.Moving+q.Dead == 0 && q.Counters[protocol.CountAcknowledged] == 1
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if want := []string{"0/1", "0/2", "1/1"}; !slices.Equal(j.runs, want) {
		j.Errorf("it was handled %v, want %v", j.runs, want)
	}
}

// deadLetter waits for that of a message.
func deadLetter(t testing.TB, m *harness.Mesh, id string) (letter protocol.DeadLetter) {
	t.Helper()
	harness.Await(t, "the dead letter", func() bool {
		all := m.Dead("")
		at := slices.IndexFunc(all, func(l protocol.DeadLetter) bool { return l.MessageID == id })
		if at < 0 {
			return false
		}
		letter = all[at]
		return true
	})
	return letter
}

// oneTrace: a message leads to one on the next broker, and each of them fails, is
// dead and is redriven: all of it is in the trace in which the first was published.
func oneTrace(t *testing.T, m *harness.Mesh) {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled})
	c := m.Connect()
	arrived := make(chan *client.Receipt, len(kinds))
	publish := func(ctx context.Context, n int) error {
		r, err := c.Publish(ctx, client.Queue(kinds[n].execution(), "trace"), nil)
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
			case n+1 == len(kinds):
				close(arrived)
				return nil
			}
			return publish(ctx, n+1)
		}, client.Backoff(backoff))
	}
	if err := publish(trace.ContextWithSpanContext(t.Context(), parent), 0); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		r := harness.Receive(t, "a message on "+k.broker(), arrived)
		if r.Broker != k.broker() {
			t.Errorf("it is on %s, not on %s", r.Broker, k.broker())
		}
		deadLetter(t, m, r.MessageID)
		if n, err := m.Redrive(protocol.DeadActRequest{MessageID: r.MessageID}); n != 1 || err != nil {
			t.Fatalf("%d are redriven: %v", n, err)
		}
	}
	harness.Receive(t, "the end of the chain", arrived)
}
