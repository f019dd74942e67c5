package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// handling is how messages are handled, whatever they come from.
type handling struct {
	Exec        string        `help:"Run this with sh -c for each message: payload on stdin, headers in WAYBILL_HEADER_…; exit 0 acknowledges, 65 rejects, anything else fails with stderr as the error. Without it messages are printed and acknowledged." placeholder:"COMMAND"`
	Concurrency *int          `help:"Messages handled at once; 0 pauses. Default 10, or what the queue's broker is configured with." placeholder:"N"`
	Name        string        `help:"Name of this worker, and of its subscription, in listings. Default host/waybill, and the route or topic." placeholder:"NAME"`
	Count       int64         `help:"Stop after this many messages. Default: at Ctrl-C." placeholder:"N"`
	Drain       time.Duration `default:"25s" help:"How long running handlers may go on at the end; the rest is handed back unspent."`

	connection []client.Option // beside those of the flags
}

// subscribe makes a client's subscription with a handler.
type subscribe func(ctx context.Context, cl *client.Client, h client.Handler) (*client.Worker, error)

// run handles messages until Ctrl-C, or until there were enough. doing says
// what it does, for people.
func (c *handling) run(a *app, doing string, subscribe subscribe) error {
	opts := append(slices.Clip(c.connection), client.DrainWindow(c.Drain))
	if c.Name != "" {
		opts = append(opts, client.Name(c.Name))
	}
	cl, err := a.client(opts...)
	if err != nil {
		return err
	}
	ctx, enough := context.WithCancel(a.ctx)
	defer enough()
	w, err := subscribe(ctx, cl, counted(c.Count, c.handler(a), enough))
	if a.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errToldToStop
	}
	if err != nil {
		return errors.Join(err, cl.Close(a.ctx))
	}
	a.hintf("%s as %s; Ctrl-C ends it", doing, w.ID())
	<-ctx.Done()
	if a.ctx.Err() == nil { // all that were wanted are done: hand the others back at once
		ending, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		return cl.Close(ending)
	}
	return cl.Close(hurried(a.ctx))
}

func (c *handling) options(timeoutMs int64) []client.WorkOption {
	var opts []client.WorkOption
	if c.Concurrency != nil {
		opts = append(opts, client.Concurrency(*c.Concurrency))
	}
	if timeoutMs != 0 {
		opts = append(opts, client.Timeout(span(timeoutMs)))
	}
	if c.Name != "" {
		opts = append(opts, client.Name(c.Name))
	}
	return opts
}

func (c *handling) handler(a *app) client.Handler {
	p := &printer{a: a}
	if c.Exec == "" {
		return p.handle
	}
	child := &child{command: c.Exec, stdout: a.stdout, stderr: a.stderr}
	if !a.flags.JSON {
		return child.handle
	}
	child.stdout = a.stderr // stdout is for machines alone
	return func(ctx context.Context, d *client.Delivery) error {
		err := child.handle(ctx, d)
		p.tell(d, err)
		return err
	}
}

// retrying is what becomes of failed deliveries: what is not given, brokers may have
// defaults of their own for.
type retrying struct {
	MaxRetries *int   `help:"Failed deliveries before a message is dead-lettered. Default 3, or what the broker says." placeholder:"N"`
	BackoffMs  *int64 `aliases:"backoff" help:"Delay before the second attempt in milliseconds; it doubles each time. Default 1000." placeholder:"MS"`
}

func (c *retrying) options() []client.WorkOption {
	var opts []client.WorkOption
	if c.MaxRetries != nil {
		opts = append(opts, client.MaxRetries(*c.MaxRetries))
	}
	if c.BackoffMs != nil {
		opts = append(opts, client.Backoff(span(*c.BackoffMs)))
	}
	return opts
}

// ordering is in what order messages are handled.
type ordering struct {
	FIFO         bool   `help:"Handle the messages of a group in order, one at a time; one that fails keeps its place. Messages without a group are one group."`
	OnDeadLetter string `name:"on-dead-letter" enum:"continue,block,divert" default:"continue" help:"With --fifo, when a message of a group is dead-lettered: continue with the next, block the group until the letter is redriven and handled or discarded, or divert what waits to the dead letters too."`
	MaxPriority  int    `name:"max-priority" help:"Handle the message with the highest priority first; all above this are the same. Default: no priorities." placeholder:"1-255"`
}

func (c *ordering) options() []client.WorkOption {
	var opts []client.WorkOption
	if c.FIFO {
		opts = append(opts, client.FIFO())
	}
	if what := protocol.OnDeadLetter(c.OnDeadLetter); what != protocol.DeadLetterContinue {
		opts = append(opts, client.OnDeadLetter(what))
	}
	if c.MaxPriority != 0 {
		opts = append(opts, client.MaxPriority(c.MaxPriority))
	}
	return opts
}

type workCmd struct {
	Execution string `arg:"" help:"Execution id."`
	Route     string `arg:"" help:"Route of the execution."`
	handling
	retrying
	ordering
	TimeoutMs int64 `default:"1800000" help:"Time limit of one delivery in milliseconds."`
}

func (c *workCmd) Run(a *app) error {
	opts := slices.Concat(c.handling.options(c.TimeoutMs), c.retrying.options(), c.ordering.options())
	return c.run(a, "working "+c.Route+" of "+c.Execution, func(ctx context.Context, cl *client.Client, h client.Handler) (*client.Worker, error) {
		return cl.Work(ctx, c.Execution, c.Route, h, opts...)
	})
}

// counted ends the work after n messages were handled, whatever came of them;
// 0 is never. Messages beyond n are handed back.
func counted(n int64, h client.Handler, enough func()) client.Handler {
	if n <= 0 {
		return h
	}
	var mu sync.Mutex
	begun, done := int64(0), int64(0)
	count := func(counter *int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		*counter++
		return *counter
	}
	return func(ctx context.Context, d *client.Delivery) error {
		if count(&begun) > n {
			<-ctx.Done() // the end is near
			return ctx.Err()
		}
		defer func() {
			if count(&done) == n {
				enough()
			}
		}()
		return h(ctx, d)
	}
}

// printer prints each message, one at a time.
type printer struct {
	a  *app
	mu sync.Mutex
}

func (p *printer) handle(_ context.Context, d *client.Delivery) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.a.flags.JSON {
		return json.NewEncoder(p.a.stdout).Encode(printed(d, nil))
	}
	headers := d.Headers()
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, try %d of %d\n", d.ID, d.Attempt, d.MaxRetries)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&b, "# %s: %s\n", name, headers[name])
	}
	b.Write(d.Data)
	_, err := fmt.Fprintln(p.a.stdout, b.String())
	return err
}

// tell prints a message that a command has handled. What it came to does not
// depend on whether that can be printed.
func (p *printer) tell(d *client.Delivery, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lost := json.NewEncoder(p.a.stdout).Encode(printed(d, err)); lost != nil {
		p.a.hintf("%s is handled, and cannot be printed: %v", d.ID, lost)
	}
}

// message is a delivery as JSON: the payload as text if it is text, else in
// base64; with an error if it was not acknowledged.
type message struct {
	MessageID  string            `json:"message_id"`
	Execution  string            `json:"execution"`
	Route      string            `json:"route"`
	Topic      string            `json:"topic,omitempty"`
	Attempt    int               `json:"attempt"`
	MaxRetries int               `json:"max_retries"`
	Generation int               `json:"generation,omitempty"`
	Group      string            `json:"group,omitempty"`
	Priority   uint8             `json:"priority,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Payload    *string           `json:"payload,omitempty"`
	Base64     []byte            `json:"payload_base64,omitempty"`
	Error      string            `json:"error,omitempty"`
}

func printed(d *client.Delivery, err error) message {
	m := message{
		MessageID: d.ID, Execution: d.Execution, Route: d.Route, Topic: d.Topic, Attempt: d.Attempt, MaxRetries: d.MaxRetries,
		Generation: d.Generation, Group: d.Group, Priority: d.Priority, Headers: d.Headers(),
	}
	m.Payload, m.Base64 = textOrBytes(d.Data)
	if err != nil {
		m.Error = err.Error()
	}
	return m
}

// textOrBytes is data as JSON takes it best.
func textOrBytes(data []byte) (text *string, base64 []byte) {
	if s := string(data); utf8.ValidString(s) {
		return &s, nil
	}
	return nil, data
}
