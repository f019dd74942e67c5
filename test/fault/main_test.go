// Package fault_test breaks one thing at a time, a worker, a connection, the
// store, a limit, and shows what the mesh makes of it.
package fault_test

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// publish publishes one message and returns its id.
func publish(t *testing.T, c *client.Client, execution, route string, data []byte, opts ...client.PublishOption) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	receipt, err := c.Publish(ctx, client.Queue(execution, route), data, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return receipt.MessageID
}

// work handles a route until the test ends.
func work(t *testing.T, c *client.Client, execution, route string, h client.Handler, opts ...client.WorkOption) *client.Worker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	w, err := c.Work(ctx, execution, route, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// seen is a delivery as its handler saw it.
type seen struct {
	client.Delivery

	at time.Time
}

// see copies what a test looks at.
func see(d *client.Delivery) *seen {
	return &seen{
		at: time.Now(),
		Delivery: client.Delivery{
			ID: d.ID, Execution: d.Execution, Route: d.Route, Attempt: d.Attempt,
			MaxRetries: d.MaxRetries, Generation: d.Generation, Data: d.Data,
		},
	}
}

// handle gives every delivery to the test and ends it as the test answers.
type handle struct {
	came   chan *seen
	answer chan error
}

func newHandle() *handle {
	return &handle{came: make(chan *seen, 1024), answer: make(chan error, 1024)}
}

func (h *handle) run(ctx context.Context, d *client.Delivery) error {
	h.came <- see(d)
	select {
	case err := <-h.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next is the next delivery.
func (h *handle) next(t *testing.T) *seen {
	t.Helper()
	return harness.Receive(t, "a delivery", h.came)
}

// none checks that no delivery has come.
func (h *handle) none(t *testing.T) {
	t.Helper()
	select {
	case d := <-h.came:
		t.Errorf("unexpected: %s attempt %d generation %d", d.ID, d.Attempt, d.Generation)
	default:
	}
}

func same(t *testing.T, d *seen, id string, attempt, generation int) {
	t.Helper()
	if d.ID != id || d.Attempt != attempt || d.Generation != generation {
		t.Errorf("delivery %s attempt %d generation %d, want %s attempt %d generation %d", d.ID, d.Attempt, d.Generation, id, attempt, generation)
	}
}
