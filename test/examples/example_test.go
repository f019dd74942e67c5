// Package examples shows the Go SDK at work on a real mesh. go test runs each
// example and compares what it prints.
package examples

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// address is the mesh's NATS; yours is nats://127.0.0.1:4222 after `waybill up`.
var address string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	data, err := os.MkdirTemp("", "waybill-examples-")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(data)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	mesh, err := up.Start(ctx, up.Options{Data: data, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	if err != nil {
		log.Print(err)
		return 1
	}
	defer mesh.Stop(ctx)
	address = mesh.NATS()
	return m.Run()
}

// connect is a client of the mesh and its end.
func connect(ctx context.Context) (*client.Client, func()) {
	c, err := client.Connect(ctx, address, client.Name("example"))
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		if err := c.Close(ctx); err != nil {
			log.Print(err)
		}
	}
}

// A message is published to a route of an execution and handled there. The
// handler's return settles it.
func Example() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	handled := make(chan string)
	_, err := c.Work(ctx, "run-1", "greetings", func(_ context.Context, d *client.Delivery) error {
		handled <- string(d.Data)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := c.Publish(ctx, client.Queue("run-1", "greetings"), []byte("hello"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt.Durability, <-handled)
	// Output: fsync hello
}

// A handler that fails is called again after a growing delay. When its tries
// are spent, the message is a dead letter.
func ExampleClient_Work() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	attempts := make(chan string)
	_, err := c.Work(ctx, "run-2", "orders", func(_ context.Context, d *client.Delivery) error {
		attempts <- fmt.Sprintf("try %d of %d: %s", d.Attempt, d.MaxRetries, d.Data)
		if d.Attempt < 3 {
			return errors.New("the warehouse does not answer")
		}
		return nil
	}, client.MaxRetries(3), client.Backoff(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Publish(ctx, client.Queue("run-2", "orders"), []byte("order 7")); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		fmt.Println(<-attempts)
	}
	// Output:
	// try 1 of 3: order 7
	// try 2 of 3: order 7
	// try 3 of 3: order 7
}

// A message that can never succeed is rejected: it goes to the dead letters
// after the first try.
func ExampleReject() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	attempts := make(chan int)
	_, err := c.Work(ctx, "run-3", "orders", func(_ context.Context, d *client.Delivery) error {
		attempts <- d.Attempt
		return client.Reject(errors.New("this is no order"))
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Publish(ctx, client.Queue("run-3", "orders"), []byte("nonsense")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("rejected at try", <-attempts)
	// Output: rejected at try 1
}

// A second publish with the same id within two minutes stores nothing; its
// receipt names the first message.
func ExampleDedupID() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	to := client.Queue("run-4", "invoices")
	first, err := c.Publish(ctx, to, []byte("invoice 12"), client.DedupID("invoice-12"))
	if err != nil {
		log.Fatal(err)
	}
	second, err := c.Publish(ctx, to, []byte("invoice 12"), client.DedupID("invoice-12"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(second.Duplicate, second.MessageID == first.MessageID)
	// Output: true true
}

// PublishMany does not wait for each answer in turn, and says what became of
// every message.
func ExampleClient_PublishMany() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	good := client.Message{To: client.Queue("run-5", "parts"), Data: []byte("a bolt")}
	bad := client.Message{To: client.Queue("run 5", "parts"), Data: []byte("a nut")} // ids have no spaces
	results, _ := c.PublishMany(ctx, []client.Message{good, bad, good})
	for _, r := range results {
		if r.Err != nil {
			fmt.Println("refused:", protocol.CodeOf(r.Err))
			continue
		}
		fmt.Println("stored:", r.Receipt.Durability)
	}
	// Output:
	// stored: fsync
	// refused: INVALID_NAME
	// stored: fsync
}

// A function is called through the mesh by its namespace and id; whoever
// serves it answers.
func ExampleClient_Call() {
	ctx := context.Background()
	c, done := connect(ctx)
	defer done()

	_, err := c.Handle(ctx, "default", "greeter::greet", func(_ context.Context, name []byte) ([]byte, error) {
		return append([]byte("hello, "), name...), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := c.Call(ctx, "default", "greeter::greet", []byte("world"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(answer))

	_, err = c.Call(ctx, "default", "greeter::nobody", nil)
	fmt.Println(protocol.CodeOf(err))
	// Output:
	// hello, world
	// FUNCTION_NOT_FOUND
}
