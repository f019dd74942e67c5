package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

type pubCmd struct {
	Queue pubQueueCmd `cmd:"" help:"Publish to a route of an execution; returns when the message is stored."`
	Topic pubTopicCmd `cmd:"" help:"Publish to a topic; returns when the message is stored for everybody who subscribes."`
}

// publishing is what is published, wherever to.
type publishing struct {
	Payload string   `arg:"" optional:"" help:"The payload; - reads it from stdin. Default empty."`
	Header  []string `short:"H" sep:"none" help:"A header, NAME=VALUE. May be repeated." placeholder:"NAME=VALUE"`
	DedupID string   `name:"dedup-id" help:"A second publish with this id within two minutes has no effect." placeholder:"ID"`

	pubOrder
	pubSchedule
}

// pubOrder says what is published stands in what order.
type pubOrder struct {
	Group    string `help:"The group of the message: a FIFO queue handles a group's messages in order, one at a time." placeholder:"GROUP"`
	Priority uint8  `help:"The higher, the sooner it is handled, in a queue with priorities: 0 to 255." placeholder:"N"`
}

func (o *pubOrder) options() []client.PublishOption {
	return []client.PublishOption{client.InGroup(o.Group), client.Priority(o.Priority)}
}

// pubSchedule says when what is published is to be delivered.
type pubSchedule struct {
	Delay time.Duration `help:"Deliver it this long after now, such as 5s or 2h." xor:"schedule" placeholder:"TIME"`
	At    string        `help:"Deliver it at this time: RFC 3339 with its zone, such as 2026-03-04T05:06:07+01:00." xor:"schedule" placeholder:"TIME"`
}

func (s *pubSchedule) options() ([]client.PublishOption, error) {
	if s.At == "" {
		return []client.PublishOption{client.Delay(s.Delay)}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s.At)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "--at is %q: it is a time with its zone, such as %s", s.At, time.Now().Add(time.Hour).Format(time.RFC3339))
	}
	return []client.PublishOption{client.DeliverAt(at)}, nil
}

// due is when it is to be delivered; zero for at once.
func (s *pubSchedule) due() time.Time {
	if s.Delay > 0 {
		return time.Now().Add(s.Delay)
	}
	at, err := time.Parse(time.RFC3339Nano, s.At)
	if err != nil || !at.After(time.Now()) {
		return time.Time{}
	}
	return at
}

func (c *publishing) publish(a *app, to client.Destination, more ...client.PublishOption) (*client.Receipt, error) {
	data, err := payload(a, c.Payload)
	if err != nil {
		return nil, err
	}
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	cl, err := a.client(client.Name("cli/" + whoAsks()))
	if err != nil {
		return nil, err
	}
	defer cl.Close(context.WithoutCancel(a.ctx)) //nolint:errcheck // everything is answered
	return cl.Publish(a.ctx, to, data, append(opts, more...)...)
}

func (c *publishing) options() ([]client.PublishOption, error) {
	opts, err := c.pubSchedule.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts, c.pubOrder.options()...)
	opts = append(opts, client.DedupID(c.DedupID))
	headers, err := c.headers()
	return append(opts, headers...), err
}

func (c *publishing) headers() ([]client.PublishOption, error) {
	var opts []client.PublishOption
	said := make(map[string]bool, len(c.Header))
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, protocol.Errorf(protocol.CodeInvalidArgs, "--header is %q: it is NAME=VALUE", h)
		}
		if said[name] {
			return nil, protocol.Errorf(protocol.CodeInvalidArgs, "--header %s is given twice: a header has one value", name)
		}
		said[name] = true
		opts = append(opts, client.Header(name, value))
	}
	return opts, nil
}

type pubQueueCmd struct {
	Execution string `arg:"" help:"Execution id."`
	Route     string `arg:"" help:"Route of the execution, such as parse or files.parse."`
	publishing
}

func (c *pubQueueCmd) Run(a *app) error {
	receipt, err := c.publish(a, client.Queue(c.Execution, c.Route))
	if err != nil {
		return err
	}
	return a.show(receipt, func() { c.report(a, receipt) })
}

func (c *pubQueueCmd) report(a *app, r *client.Receipt) {
	route, _ := scope.Route(c.Execution, c.Route)
	queue := scope.ScopedName(c.Execution, route)
	if r.Duplicate {
		a.sayf("%s was published to %s before; nothing was stored", r.MessageID, queue)
		return
	}
	a.sayf("%s published to %s (%s)", r.MessageID, queue, r.Durability)
	if due := c.due(); !due.IsZero() {
		a.hintf("it waits until %s: %s", due.Format(time.RFC3339), command(a.flags.NATS, "retry ls "+c.Execution+"/"+route))
	}
	if r.Listeners == 0 {
		a.hintf("nobody works it yet: %s", command(a.flags.NATS, "work "+c.Execution+" "+route))
	}
}

// payload is the argument, or stdin for "-".
func payload(a *app, arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, a.stdin); err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "stdin cannot be read: %v", err)
	}
	return b.Bytes(), nil
}
