// Package client is the Go SDK of Waybill: publish to the queues of an
// execution, work them with handlers that just return an outcome, and call
// functions.
//
//	c, err := client.Connect(ctx, "nats://127.0.0.1:4222")
//	…
//	defer c.Close(context.Background())
//
//	_, err = c.Publish(ctx, client.Queue("run-7", "parse"), []byte("a.go"))
//
//	w, err := c.Work(ctx, "run-7", "parse", func(ctx context.Context, d *client.Delivery) error {
//		return parse(ctx, d.Data) // nil: done; client.Reject(err): never; else: again
//	})
//
// Errors are coded: protocol.CodeOf tells what kind one is, and its text says
// what to do about it.
package client
