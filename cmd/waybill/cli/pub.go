package cli

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

type pubCmd struct {
	Queue pubQueueCmd `cmd:"" help:"Publish to a route of an execution; returns when the message is stored."`
}

type pubQueueCmd struct {
	Execution string   `arg:"" help:"Execution id."`
	Route     string   `arg:"" help:"Route of the execution, such as parse or files.parse."`
	Payload   string   `arg:"" optional:"" help:"The payload; - reads it from stdin. Default empty."`
	Header    []string `short:"H" sep:"none" help:"A header, NAME=VALUE. May be repeated." placeholder:"NAME=VALUE"`
	DedupID   string   `name:"dedup-id" help:"A second publish with this id within two minutes has no effect." placeholder:"ID"`
}

func (c *pubQueueCmd) Run(a *app) error {
	data, err := payload(a, c.Payload)
	if err != nil {
		return err
	}
	opts, err := c.publishOptions()
	if err != nil {
		return err
	}
	cl, err := a.client()
	if err != nil {
		return err
	}
	defer cl.Close(context.WithoutCancel(a.ctx)) //nolint:errcheck // everything is answered
	receipt, err := cl.Publish(a.ctx, client.Queue(c.Execution, c.Route), data, opts...)
	if err != nil {
		return err
	}
	return a.show(receipt, func() { c.report(a, receipt) })
}

func (c *pubQueueCmd) publishOptions() ([]client.PublishOption, error) {
	opts := []client.PublishOption{client.DedupID(c.DedupID)}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, protocol.Errorf(protocol.CodeInvalidArgs, "--header is %q: it is NAME=VALUE", h)
		}
		opts = append(opts, client.Header(name, value))
	}
	return opts, nil
}

func (c *pubQueueCmd) report(a *app, r *client.Receipt) {
	route, _ := scope.Route(c.Execution, c.Route)
	queue := scope.ScopedName(c.Execution, route)
	if r.Duplicate {
		a.sayf("%s was published to %s before; nothing was stored", r.MessageID, queue)
		return
	}
	a.sayf("%s published to %s (%s)", r.MessageID, queue, r.Durability)
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
