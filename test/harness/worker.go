package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const workerEnv = "WAYBILL_TEST_WORKER"

// WorkerSpec says what a worker process works on.
type WorkerSpec struct {
	URL         string        `json:"url"`
	Execution   string        `json:"execution"`
	Route       string        `json:"route"`
	Also        []string      `json:"also,omitempty"`  // executions on whose route it works too
	Topic       string        `json:"topic,omitempty"` // instead of a route: it observes
	ID          string        `json:"id,omitempty"`    // as an observer of its own, or
	Group       string        `json:"group,omitempty"` // as one of a group
	Listen      bool          `json:"listen"`          // or it listens
	Name        string        `json:"name,omitempty"`  // of the program; default the client's
	Concurrency int           `json:"concurrency"`     // default 1
	MaxRetries  int           `json:"max_retries"`     // default the mesh's
	Backoff     time.Duration `json:"backoff"`         // default the mesh's
	Window      time.Duration `json:"window"`          // to finish in at SIGTERM; default none
	FIFO        bool          `json:"fifo"`
	Handler     string        `json:"handler"` // of RegisterHandler; default obeys the payload
}

// Payloads a worker process obeys; any other is acknowledged.
const (
	Hold     = "hold"      // run until cancelled, then hand the message back
	FailHold = "fail-hold" // fail the first attempt, hold the next
	Slow     = "slow"      // run for a second, then acknowledge
)

var handlers = map[string]client.Handler{"": obey}

// RegisterHandler names a handler for worker processes. It is called before
// Main, by the variables of the package that uses it.
func RegisterHandler(name string, h client.Handler) string {
	handlers[name] = h
	return name
}

// Event is what a worker process tells of itself.
type Event struct {
	Ready      bool             `json:"ready,omitempty"` // it is registered; the rest is of a delivery
	ID         string           `json:"id,omitempty"`
	Attempt    int              `json:"attempt,omitempty"`
	MaxRetries int              `json:"max_retries,omitempty"`
	Generation int              `json:"generation,omitempty"`
	Data       string           `json:"data,omitempty"`
	Outcome    protocol.Outcome `json:"outcome,omitempty"` // empty: the handler has begun
}

// Worker is a worker in a process of its own, which can be killed.
type Worker struct {
	*Process
	Events chan Event // what it told of deliveries; its end closes it

	ready chan struct{} // closed when it is registered, or has ended
}

// StartWorker starts a worker process and returns when the mesh knows it.
func StartWorker(t testing.TB, spec WorkerSpec) *Worker {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = environment(workerEnv + "=" + string(text))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := &Worker{Events: make(chan Event, 65536), ready: make(chan struct{})}
	w.Process = spawn(t, "worker", cmd, write)
	write.Close()
	var reading sync.WaitGroup
	reading.Go(func() { w.read(read) })
	t.Cleanup(func() { w.Kill(); reading.Wait() })
	Receive(t, "a worker's registration", w.ready)
	if w.Ended() {
		t.Fatalf("the worker does not start:\n%s", w.Output())
	}
	return w
}

func (w *Worker) read(from *os.File) {
	defer from.Close()
	defer close(w.Events)
	ready := sync.OnceFunc(func() { close(w.ready) })
	defer ready()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var e Event
		switch err := json.Unmarshal(lines.Bytes(), &e); {
		case err != nil: // cut off by a kill
		case e.Ready:
			ready()
		default:
			w.Events <- e
		}
	}
}

// Delivery is the next delivery that begins.
func (w *Worker) Delivery() Event {
	w.t.Helper()
	for {
		e := Receive(w.t, "a delivery to a worker process", w.Events)
		if e.ID == "" {
			w.t.Fatal("the worker process has ended")
		}
		if e.Outcome == "" {
			return e
		}
	}
}

// workerMain is the worker process.
func workerMain(text string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var spec WorkerSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return failed(err)
	}
	opts := []client.Option{client.DrainWindow(spec.Window)}
	if spec.Name != "" {
		opts = append(opts, client.Name(spec.Name))
	}
	c, err := client.Connect(ctx, spec.URL, opts...)
	if err != nil {
		return failed(err)
	}
	tell := teller(os.Stdout)
	if err := spec.subscribe(ctx, c, told(tell, handlers[spec.Handler])); err != nil {
		return failed(err)
	}
	tell(Event{Ready: true})
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.Background(), spec.Window+10*time.Second)
	defer cancel()
	if err := c.Close(closing); err != nil {
		return failed(err)
	}
	return 0
}

func (s WorkerSpec) subscribe(ctx context.Context, c *client.Client, h client.Handler) (err error) {
	opts := s.options()
	switch {
	case s.Topic == "":
		for _, execution := range append([]string{s.Execution}, s.Also...) {
			_, failed := c.Work(ctx, execution, s.Route, h, opts...)
			err = errors.Join(err, failed)
		}
	case s.Listen:
		_, err = c.Listen(ctx, s.Topic, h, opts...)
	case s.Group != "":
		_, err = c.Observe(ctx, s.Topic, h, append(opts, client.Group(s.Group))...)
	default:
		_, err = c.Observe(ctx, s.Topic, h, append(opts, client.ID(s.ID))...)
	}
	return err
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// teller writes an event a line; what it has written a kill does not take back.
func teller(to io.Writer) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(to).Encode(e)
	}
}

// told tells how a handler begins, and how it ends just before the mesh hears of
// it.
func told(tell func(Event), h client.Handler) client.Handler {
	return func(ctx context.Context, d *client.Delivery) error {
		e := Event{ID: d.ID, Attempt: d.Attempt, MaxRetries: d.MaxRetries, Generation: d.Generation, Data: string(d.Data)}
		tell(e)
		err := h(ctx, d)
		switch {
		case err == nil:
			e.Outcome = protocol.Acknowledged
		case errors.Is(err, ErrReject):
			e.Outcome = protocol.Rejected
		case ctx.Err() != nil:
			e.Outcome = protocol.Cancelled
		default:
			e.Outcome = protocol.Failed
		}
		tell(e)
		return err
	}
}

// ErrReject is in the error of a handler that rejects.
var ErrReject = errors.New("told to reject")

// obey does what the payload says.
func obey(ctx context.Context, d *client.Delivery) error {
	payload := string(d.Data)
	switch {
	case payload == FailHold && d.Attempt == 1:
		return errors.New("told to fail")
	case payload == Hold, payload == FailHold:
		<-ctx.Done()
		return ctx.Err()
	case payload == Slow:
		return pause(ctx, time.Second)
	default:
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s WorkerSpec) options() []client.WorkOption {
	opts := []client.WorkOption{client.Concurrency(max(s.Concurrency, 1))}
	if s.MaxRetries > 0 {
		opts = append(opts, client.MaxRetries(s.MaxRetries))
	}
	if s.Backoff > 0 {
		opts = append(opts, client.Backoff(s.Backoff))
	}
	if s.FIFO {
		opts = append(opts, client.FIFO())
	}
	return opts
}
