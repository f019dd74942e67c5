package cli

import (
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
)

type enqueueCmd struct {
	Queue     string   `arg:"" help:"The named queue, such as default."`
	Function  string   `arg:"" help:"Function id, such as text::upper."`
	Data      string   `arg:"" optional:"" default:"null" help:"The function's input, JSON; - reads it from stdin. Default null."`
	Namespace string   `default:"default" help:"Namespace of the function." placeholder:"NAMESPACE"`
	Receipt   string   `help:"Your own name for the job; it is delivered with it." placeholder:"RECEIPT"`
	Header    []string `short:"H" sep:"none" help:"A header, NAME=VALUE. May be repeated." placeholder:"NAME=VALUE"`
	DedupID   string   `name:"dedup-id" help:"A second job with this id within two minutes has no effect." placeholder:"ID"`

	pubSchedule
}

func (c *enqueueCmd) Run(a *app) error {
	p := publishing{Payload: c.Data, Header: c.Header, DedupID: c.DedupID, pubSchedule: c.pubSchedule}
	receipt, err := p.publish(a, client.Job(c.Queue, c.Namespace, c.Function), client.JobReceipt(c.Receipt))
	if err != nil {
		return err
	}
	return a.show(receipt, func() { c.report(a, receipt) })
}

func (c *enqueueCmd) report(a *app, r *client.Receipt) {
	if r.Duplicate {
		a.sayf("%s was enqueued in %s before; nothing was stored", r.MessageID, c.Queue)
		return
	}
	a.sayf("%s enqueued in %s for %s (%s)", r.MessageID, c.Queue, c.Function, r.Durability)
	if due := c.due(); !due.IsZero() {
		a.hintf("it waits until %s: %s", due.Format(time.RFC3339), command(a.flags.NATS, "retry ls /jobs/"+c.Queue))
	}
	if r.Listeners == 0 {
		a.hintf("nobody serves a function of that queue's jobs yet: %s", command(a.flags.NATS, "serve "+c.Function))
	}
}
