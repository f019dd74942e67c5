package harness

import (
	"context"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
)

// Publish publishes to where a message goes, or ends the test.
func Publish(t testing.TB, c *client.Client, to client.Destination, data string, opts ...client.PublishOption) *client.Receipt {
	t.Helper()
	r, err := c.Publish(t.Context(), to, []byte(data), opts...)
	if err != nil {
		t.Fatalf("publishing: %v", err)
	}
	return r
}

// Work has a route's deliveries handled, or ends the test.
func Work(t testing.TB, c *client.Client, execution, route string, h client.Handler, opts ...client.WorkOption) *client.Worker {
	t.Helper()
	w, err := c.Work(t.Context(), execution, route, h, opts...)
	if err != nil {
		t.Fatalf("working: %v", err)
	}
	return w
}

// Taken is a delivery that the test ends: its handler returns what is sent to End.
type Taken struct {
	*client.Delivery
	End chan<- error
}

// Take has a route's deliveries ended by the test.
func Take(t testing.TB, c *client.Client, execution, route string, opts ...client.WorkOption) (<-chan Taken, *client.Worker) {
	t.Helper()
	all := make(chan Taken, 100)
	w := Work(t, c, execution, route, func(ctx context.Context, d *client.Delivery) error {
		end := make(chan error, 1)
		all <- Taken{d, end}
		select {
		case err := <-end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, opts...)
	return all, w
}
