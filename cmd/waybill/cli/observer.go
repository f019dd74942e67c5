package cli

import (
	"fmt"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

type observerCmd struct {
	Ls   observerLsCmd   `cmd:"" help:"List the observers and groups of topics: what they hold, who takes it, and since when nobody does."`
	Show observerShowCmd `cmd:"" help:"Show one observer or group, whole."`
	Rm   observerRmCmd   `cmd:"" help:"Remove observers and groups that nobody observes as any more, with all that they hold, dead letters included."`
}

type observerLsCmd struct {
	Topic   string `arg:"" optional:"" help:"Only this topic's."`
	Orphans bool   `help:"Only those that nobody observes as."`

	watching
}

func (c *observerLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *observerLsCmd) list(a *app) error {
	observers, err := observers(a, protocol.ObserversRequest{Topic: c.Topic, Orphans: c.Orphans})
	if err != nil {
		return err
	}
	return a.show(observers, func() {
		if len(observers) == 0 {
			a.sayf("no observers; %s makes one", command(a.flags.NATS, "observe TOPIC --id ID"))
			return
		}
		g := newGrid("QUEUE", "STATE", "READY", "IN FLIGHT", "WAITING", "DEAD", "MEMBERS", "NOBODY SINCE", "LAST WORKER")
		for i := range observers {
			o := &observers[i]
			ready, waiting, dead := counts(&o.QueueInfo)
			g.row(o.Queue, o.State, ready, o.InFlight, waiting, dead, len(o.Members), ago(o.DetachedAt), lastWorker(o))
		}
		g.write(a.stdout)
		sayUnknown(a, observers, func(o *protocol.ObserverInfo) string { return o.Unknown })
		for i := range observers {
			sayUnmet(a, observers[i].Members)
		}
	})
}

// observers are all pages of a list.
func observers(a *app, q protocol.ObserversRequest) ([]protocol.ObserverInfo, error) {
	all := []protocol.ObserverInfo{}
	for {
		page, err := ask[protocol.ObserversPage](a, protocol.SubjectObservers, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Observers...)
		if page.Next == "" {
			return all, nil
		}
		q.After = page.Next
	}
}

func lastWorker(o *protocol.ObserverInfo) string {
	switch {
	case o.Owner != nil:
		return printable(o.Owner.WorkerName) + " (" + o.Owner.Namespace + ")"
	case len(o.Members) > 0:
		return printable(o.Members[0].WorkerName) + " (" + o.Members[0].Namespace + ")"
	default:
		return "-"
	}
}

type observerShowCmd struct {
	Queue string `arg:"" help:"TOPIC::observer:ID or TOPIC::@GROUP."`
}

func (c *observerShowCmd) Run(a *app) error {
	found, err := observers(a, protocol.ObserversRequest{Queue: c.Queue})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return protocol.Errorf(protocol.CodeNotFound, "there is no observer or group with the queue %s\n  next: %s lists those there are", c.Queue, command(a.flags.NATS, "observer ls"))
	}
	o := &found[0]
	return a.show(o, func() { reportObserver(a, o) })
}

func reportObserver(a *app, o *protocol.ObserverInfo) {
	ready, waiting, dead := counts(&o.QueueInfo)
	lines := [][2]string{
		{"queue", o.Queue}, {"topic", o.Topic}, {"state", string(o.State)},
		{"holds", fmt.Sprintf("%v ready, %d in flight, %v waiting, %v dead", ready, o.InFlight, waiting, dead)},
	}
	if o.Unknown != "" {
		lines = append(lines, [2]string{unknown, o.Unknown})
	}
	if !o.DetachedAt.IsZero() {
		receives := "receives the topic no more, and keeps what it holds"
		if o.Receiving {
			receives = "receives the topic until it is removed"
		}
		if !o.ReceivesUntil.IsZero() {
			receives = "receives the topic until " + o.ReceivesUntil.Format(time.RFC3339)
		}
		lines = append(lines, [2]string{"nobody since", ago(o.DetachedAt)}, [2]string{"it", receives})
	}
	if owner := o.Owner; owner != nil {
		whose := lastWorker(o)
		if !owner.KeptUntil.IsZero() {
			whose += ", for whom it is kept until " + owner.KeptUntil.Format(time.RFC3339)
		}
		lines = append(lines, [2]string{"id is of", whose})
	}
	for i := range o.Members {
		m := &o.Members[i]
		text := fmt.Sprintf("%s of %s (%s), %d at once", m.ID, printable(m.WorkerName), m.Namespace, m.Concurrency)
		if m.Target != nil {
			text += ", for the function " + m.Target.ID + " of " + m.Target.Namespace
		}
		if m.Inactive {
			text += ": " + string(protocol.CodeObserverNotActive)
		}
		lines = append(lines, [2]string{"member", text})
		if m.Effective != nil && m.Effective.Unmet != "" {
			lines = append(lines, [2]string{"unmet", m.Effective.Unmet})
		}
	}
	for _, line := range lines {
		a.sayf("%-13s %s", line[0], line[1])
	}
}

type observerRmCmd struct {
	Queues  []string `arg:"" optional:"" name:"queue" help:"TOPIC::observer:ID or TOPIC::@GROUP, one or more."`
	Orphans bool     `help:"All that nobody observes as, and that receive their topics no more."`
	Topic   string   `help:"With --orphans, only this topic's." placeholder:"TOPIC"`
}

func (c *observerRmCmd) Run(a *app) error {
	queues, err := c.named(a)
	if err != nil {
		return err
	}
	all := []protocol.ObserverRemoved{}
	for _, queue := range queues {
		removed, err := ask[protocol.ObserverRemoved](a, protocol.SubjectObserverRemove, protocol.ObserverRemoveRequest{Queue: queue})
		if err != nil {
			return err
		}
		all = append(all, removed)
	}
	return a.show(all, func() {
		if len(all) == 0 {
			a.sayf("nothing to remove")
		}
		for _, r := range all {
			a.sayf("removed %s, with %s and %s", r.Queue, plural(r.Discarded, "message", "messages"), plural(r.DeadLetters, "dead letter", "dead letters"))
		}
	})
}

// named are the queues to remove.
func (c *observerRmCmd) named(a *app) ([]string, error) {
	if c.Orphans == (len(c.Queues) > 0) || c.Topic != "" && !c.Orphans {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "name the queues to remove, or all orphans with --orphans [--topic TOPIC]")
	}
	if !c.Orphans {
		return c.Queues, nil
	}
	found, err := observers(a, protocol.ObserversRequest{Topic: c.Topic, Orphans: true})
	if err != nil {
		return nil, err
	}
	var queues []string
	for i := range found {
		if found[i].State == protocol.ObserverOrphan {
			queues = append(queues, found[i].Queue)
		}
	}
	return queues, nil
}
