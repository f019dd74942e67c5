package functions_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/test/harness"
)

// job is a delivery as a function's handler has met it.
type job struct {
	*client.Delivery
	input string
}

// The Go SDK: what a function returns settles its job, as a call's caller would
// have it, and one that stops hands back what it holds.
func TestJobsOfTheSDK(t *testing.T) {
	m := harness.Start(t)
	c := m.Connect(client.DrainWindow(0))
	t.Run("outcomes", func(t *testing.T) { jobOutcomes(t, m, c) })
	t.Run("calls", func(t *testing.T) { jobCalls(t, c) })
	t.Run("handed back", func(t *testing.T) { jobsHandedBack(t, m) })
}

func jobOutcomes(t *testing.T, m *harness.Mesh, c *client.Client) {
	if _, err := c.Enqueue(t.Context(), "nowhere", "f", nil); protocol.CodeOf(err) != protocol.CodeNotFound {
		t.Errorf("a queue that is not defined: %v", err)
	}
	changed, err := c.Define(t.Context(), "mails", client.QueueConfig{MaxRetries: 2, Backoff: time.Millisecond, Concurrency: 1})
	if err != nil || !changed {
		t.Fatalf("defining: %v, %v", changed, err)
	}
	if changed, err = c.Define(t.Context(), "mails", client.QueueConfig{MaxRetries: 2, Backoff: time.Millisecond, Concurrency: 1}); err != nil || changed {
		t.Errorf("defining it again: %v, %v", changed, err)
	}
	if _, err := c.Define(t.Context(), "mails", client.QueueConfig{OnDeadLetter: "stop"}); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("a bad definition: %v", err)
	}
	ran := make(chan job, 16)
	f, err := c.Handle(t.Context(), protocol.DefaultNamespace, "mail::send", func(ctx context.Context, input []byte) ([]byte, error) {
		ran <- job{client.JobOf(ctx), string(input)}
		switch string(input) {
		case `"reject"`:
			return nil, client.Reject(errors.New("no such address"))
		case `"panic"`:
			panic("out of paper")
		case `"fail"`:
			return nil, errors.New("try again")
		default:
			return []byte("sent"), nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{`"ok"`, `"fail"`, `"reject"`, `"panic"`} {
		if _, err := c.Enqueue(t.Context(), "mails", "mail::send", []byte(input), client.JobReceipt("r-"+input[1:3])); err != nil {
			t.Fatal(err)
		}
	}
	attempts := map[string]int{}
	for range 6 {
		j := harness.Receive(t, "a job", ran)
		attempts[j.input]++
		if j.Delivery == nil || j.Attempt != attempts[j.input] || j.Header(protocol.HeaderReceipt) != "r-"+j.input[1:3] || string(j.Data) != j.input {
			t.Errorf("a job is %+v, in attempt %d of %s", j.Delivery, attempts[j.input], j.input)
		}
	}
	queue := scope.JobsQueue("mails")
	harness.Await(t, "three are dead", func() bool {
		q := m.QueueNamed(queue)
		return q.Dead == 3 && q.Ready+q.InFlight+q.Waiting+q.Moving == 0
	})
	reasons := map[protocol.Reason]int{}
	for _, letter := range m.Dead(queue) {
		reasons[letter.Reason]++
	}
	if reasons[protocol.ReasonRejected] != 1 || reasons[protocol.ReasonFailed] != 2 {
		t.Errorf("they died for %v", reasons)
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Enqueue(t.Context(), "mails", "mail::send", []byte(`"late"`)); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "it waits for somebody", func() bool {
		q := m.QueueNamed(queue)
		return q.Ready == 1 && len(q.Unserved) == 1 && q.Unserved[0].ID == "mail::send"
	})
}

// jobCalls: the same function is called directly too, and enqueued to by a call
// in the queue that is always there.
func jobCalls(t *testing.T, c *client.Client) {
	ran := make(chan job, 1)
	_, err := c.Handle(t.Context(), protocol.DefaultNamespace, "echo", func(ctx context.Context, input []byte) ([]byte, error) {
		ran <- job{client.JobOf(ctx), string(input)}
		return input, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := c.Call(t.Context(), protocol.DefaultNamespace, "echo", []byte(`1`)); err != nil || string(answer) != `1` {
		t.Errorf("a call: %s, %v", answer, err)
	}
	if j := harness.Receive(t, "the call", ran); j.Delivery != nil {
		t.Errorf("a call is the job %+v", j.Delivery)
	}
	answer, err := c.Call(t.Context(), protocol.DefaultNamespace, protocol.FunctionEnqueue, []byte(`{"queue": "default", "function_id": "echo", "data": {"a": [1]}, "messageReceiptId": "R"}`))
	if err != nil || string(answer) != `{"messageReceiptId":"R"}` {
		t.Fatalf("enqueueing by a call: %s, %v", answer, err)
	}
	if j := harness.Receive(t, "the job", ran); j.Delivery == nil || j.input != `{"a": [1]}` {
		t.Errorf("the job is %+v with %s", j.Delivery, j.input)
	}
}

// jobsHandedBack: a client that closes hands its jobs back unspent, to another.
func jobsHandedBack(t *testing.T, m *harness.Mesh) {
	first, second := m.Connect(client.DrainWindow(0)), m.Connect()
	if _, err := first.Define(t.Context(), "long", client.QueueConfig{MaxRetries: 1, GroupField: "g"}); err != nil {
		t.Fatal(err)
	}
	began, ran := make(chan struct{}, 1), make(chan *client.Delivery, 1)
	_, err := first.Handle(t.Context(), protocol.DefaultNamespace, "long::run", func(ctx context.Context, _ []byte) ([]byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Enqueue(t.Context(), "long", "long::run", []byte(`{"g": 1}`)); err != nil {
		t.Fatal(err)
	}
	harness.Receive(t, "the handler's begin", began)
	if _, err := second.Handle(t.Context(), protocol.DefaultNamespace, "long::run", func(ctx context.Context, _ []byte) ([]byte, error) {
		ran <- client.JobOf(ctx)
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if d := harness.Receive(t, "the job again", ran); d.Attempt != 1 {
		t.Errorf("it is in attempt %d", d.Attempt)
	}
}
