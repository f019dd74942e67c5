package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type queueDefineCmd struct {
	Queue         string `arg:"" help:"The named queue, such as turns."`
	Config        string `help:"The definition as JSON: a file, or - for stdin. The flags beside it win." placeholder:"FILE"`
	GroupField    string `name:"group-field" help:"Handle in order, one at a time, the jobs with the same value in this field of their data: the queue is a fifo one." placeholder:"FIELD"`
	OnDeadLetter  string `name:"on-dead-letter" help:"Of a fifo queue, when a job of a group is dead-lettered: continue (the default), block or divert." placeholder:"WHAT"`
	Concurrency   *int   `help:"Jobs at once in the whole mesh. Default 10." placeholder:"N"`
	MaxRetries    *int   `name:"max-retries" help:"Failed deliveries before the dead letter. Default 3." placeholder:"N"`
	BackoffMs     *int64 `name:"backoff-ms" help:"Delay before the second attempt in milliseconds; it doubles. Default 1000." placeholder:"MS"`
	TimeoutMs     *int64 `name:"timeout-ms" help:"Time limit of an attempt in milliseconds. Default 1800000." placeholder:"MS"`
	MaxPriority   *int   `name:"max-priority" help:"Handle the job with the highest priority first; all above this are the same. It cannot be changed. Default: no priorities." placeholder:"1-255"`
	PriorityField string `name:"priority-field" help:"The field of the jobs' data that is their priority." placeholder:"FIELD"`
}

func (c *queueDefineCmd) Run(a *app) error {
	config, err := c.config(a)
	if err != nil {
		return err
	}
	reply, err := ask[protocol.DefineReply](a, protocol.SubjectDefine, protocol.DefineRequest{Queue: c.Queue, Config: config})
	if err != nil {
		return err
	}
	for _, warning := range reply.Warnings {
		a.hintf("warning: %s", warning)
	}
	return a.show(reply, func() {
		if reply.Changed {
			a.sayf("%s is defined", c.Queue)
			return
		}
		a.sayf("%s was defined so before", c.Queue)
	})
}

// config is the definition that was asked for: what is not named is the default.
func (c *queueDefineCmd) config(a *app) (json.RawMessage, error) {
	given := map[string]any{}
	if c.Config != "" {
		text, err := jsonArg(a, "--config", c.Config, protocol.CodeInvalidArgs)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &given); err != nil || given == nil {
			return nil, protocol.Errorf(protocol.CodeInvalidArgs, "--config is no JSON object")
		}
	}
	maps.Copy(given, c.flags())
	return json.Marshal(given)
}

// flags are the fields that flags name.
func (c *queueDefineCmd) flags() map[string]any {
	given := map[string]any{}
	if c.GroupField != "" {
		given["type"], given["message_group_field"] = protocol.TypeFIFO, c.GroupField
	}
	for name, text := range map[string]string{"on_dead_letter": c.OnDeadLetter, "priority_field": c.PriorityField} {
		if text != "" {
			given[name] = text
		}
	}
	for name, n := range map[string]*int{"concurrency": c.Concurrency, "max_retries": c.MaxRetries, "max_priority": c.MaxPriority} {
		if n != nil {
			given[name] = *n
		}
	}
	for name, n := range map[string]*int64{"backoff_ms": c.BackoffMs, "timeout_ms": c.TimeoutMs} {
		if n != nil {
			given[name] = *n
		}
	}
	return given
}

type queueShowCmd struct {
	Queue string `arg:"" help:"The named queue."`
}

func (c *queueShowCmd) Run(a *app) error {
	q, err := operated(a, func(ctx context.Context, nc *nats.Conn) (*operate.NamedQueue, error) {
		return operate.ShowNamed(ctx, nc, c.Queue)
	})
	if err != nil {
		return err
	}
	return a.show(q, func() { reportNamed(a, q) })
}

func reportNamed(a *app, q *operate.NamedQueue) {
	d, holds := &q.Config, &q.Holds
	ready, waiting, dead := counts(holds)
	e := effective(q.Effective, d.MaxRetries, d.BackoffMs)
	lines := [][2]string{
		{"queue", q.Queue}, {"type", string(d.Type)},
		{"holds", fmt.Sprintf("%v ready, %d in flight, %v waiting, %v dead", ready, holds.InFlight, waiting, dead)},
		{"concurrency", strconv.Itoa(d.Concurrency)}, {"max retries", strconv.Itoa(e.MaxRetries)},
		{"backoff", backoff(&e)}, {"timeout", milliseconds(d.TimeoutMs)},
	}
	for _, more := range [][2]string{{"broker", e.Broker}, {"unmet", e.Unmet}, {"group field", d.MessageGroupField}, {"on dead letter", string(d.OnDeadLetter)}, {"priority field", d.PriorityField}} {
		if more[1] != "" {
			lines = append(lines, more)
		}
	}
	if d.MaxPriority > 0 {
		lines = append(lines, [2]string{"max priority", strconv.Itoa(d.MaxPriority)})
	}
	for _, text := range e.Warnings {
		lines = append(lines, [2]string{"warning", text})
	}
	if holds.Unknown != "" {
		lines = append(lines, [2]string{unknown, holds.Unknown})
	}
	for _, f := range holds.Unserved {
		lines = append(lines, [2]string{"waits", fmt.Sprintf("%s for %s in namespace %s, which nobody serves", plural(f.Jobs, "job", "jobs"), f.ID, f.Namespace)})
	}
	for _, line := range lines {
		a.sayf("%-14s %s", line[0], line[1])
	}
}

type queueRmCmd struct {
	Queue string `arg:"" help:"The named queue."`
	Purge bool   `help:"Discard the jobs it holds. Without it a queue that holds any is refused (CONFLICT). Dead letters stay."`
}

func (c *queueRmCmd) Run(a *app) error {
	removed, err := ask[protocol.QueueRemoved](a, protocol.SubjectQueueRemove, protocol.QueueRemoveRequest{Queue: c.Queue, Purge: c.Purge})
	if err != nil {
		return err
	}
	if !removed.Removed {
		return protocol.Errorf(protocol.CodeNotFound, "there is no named queue %s that somebody has defined\n  next: %s", c.Queue, command(a.flags.NATS, "queue ls"))
	}
	return a.show(removed, func() { a.sayf("removed %s, with %s", c.Queue, plural(removed.Discarded, "job", "jobs")) })
}
