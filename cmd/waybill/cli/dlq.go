package cli

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type dlqCmd struct {
	Ls      dlqLsCmd      `cmd:"" help:"List dead letters, oldest first: of all queues, or of one."`
	Show    dlqShowCmd    `cmd:"" help:"Show one dead letter, whole."`
	Redrive dlqRedriveCmd `cmd:"" help:"Send dead letters back to their queues, with all their tries anew."`
	Discard dlqDiscardCmd `cmd:"" help:"Remove dead letters for good."`
}

type dlqLsCmd struct {
	Queue  string `arg:"" optional:"" help:"EXECUTION/ROUTE; the NAME of a named queue, or of a topic for all that subscribe to it; TOPIC::observer:ID, TOPIC::@GROUP. Default all."`
	Limit  int    `default:"50" help:"At most this many; 0 for all."`
	Offset int    `help:"After this many."`

	watching
}

func (c *dlqLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *dlqLsCmd) list(a *app) error {
	if err := checkLimit(c.Limit); err != nil {
		return err
	}
	sources, err := sources(c.Queue)
	if err != nil {
		return err
	}
	page, err := operated(a, func(ctx context.Context, nc *nats.Conn) (protocol.DeadPage, error) {
		return operate.DeadLetters(ctx, nc, operate.Letters{Sources: sources, Offset: c.Offset, Limit: c.Limit})
	})
	if err != nil {
		return err
	}
	return a.show(page, func() { c.report(a, &page) })
}

// sources are what a name stands for; none for none, which is everything.
func sources(name string) ([]operate.Source, error) {
	if name == "" {
		return nil, nil
	}
	return operate.Sources(name)
}

// sayAway says which brokers were not asked.
func sayAway(a *app, away []string) {
	for _, why := range away {
		a.sayf("not looked at: %s", printable(why))
	}
}

func (c *dlqLsCmd) report(a *app, page *protocol.DeadPage) {
	defer sayAway(a, page.Away)
	if len(page.Letters) == 0 {
		switch {
		case page.Total > 0:
			a.sayf("no dead letters after the first %d", page.Total)
		case len(page.Away) == 0:
			a.sayf("no dead letters")
		}
		return
	}
	g := newGrid("ID", "QUEUE", "ATTEMPTS", "REASON", "LAST FAILURE", "ERROR")
	for _, l := range page.Letters {
		g.row(l.MessageID, l.Queue, l.Attempts, l.Reason, ago(l.LastFailure), short(l.Error, 60))
	}
	g.write(a.stdout)
	if shown := int64(c.Offset + len(page.Letters)); shown < page.Total {
		a.hintf("%d of %d; the next: --offset %d", shown, page.Total, shown)
	}
	a.hintf("look at one: %s; send it back: %s", command(a.flags.NATS, "dlq show ID"), command(a.flags.NATS, "dlq redrive ID"))
}

type dlqShowCmd struct {
	ID string `arg:"" help:"Message id."`
}

func (c *dlqShowCmd) Run(a *app) error {
	letter, err := ask[protocol.DeadLetter](a, protocol.SubjectDeadShow, protocol.DeadShowRequest{MessageID: c.ID})
	if protocol.CodeOf(err) == protocol.CodeNotFound {
		return protocol.Errorf(protocol.CodeNotFound, "%s is no dead letter (any more)\n  next: %s lists those there are", c.ID, command(a.flags.NATS, "dlq ls"))
	}
	if err != nil {
		return err
	}
	return a.show(letter, func() { describe(a, &letter) })
}

func describe(a *app, l *protocol.DeadLetter) {
	for _, line := range [][2]string{
		{"id", l.MessageID}, {"queue", l.Queue}, {"subscription", l.Source},
		{"reason", string(l.Reason)}, {"attempts", strconv.FormatUint(uint64(l.Attempts), 10)}, {"redriven", strconv.FormatUint(uint64(l.Generation), 10)},
		{"published", l.PublishedAt.Format(time.RFC3339Nano)},
		{"first failure", l.FirstFailure.Format(time.RFC3339Nano)}, {"last failure", l.LastFailure.Format(time.RFC3339Nano)},
		{"size", plural(int64(l.SizeBytes), "byte", "bytes")},
	} {
		a.sayf("%-14s %s", line[0], printable(line[1]))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		a.sayf("%-14s %s: %s", "header", printable(name), printable(strings.Join(l.Headers[name], ", ")))
	}
	a.sayf("error\n%s", indented(printable(l.Error)))
	if l.Truncated {
		a.sayf("payload, of which the first %d bytes are shown", len(l.Payload))
	} else {
		a.sayf("payload")
	}
	a.sayf("%s", indented(payloadText(l.Payload)))
}

func indented(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}

// payloadText is a payload as people can read it.
func payloadText(b []byte) string {
	switch {
	case len(b) == 0:
		return "(empty)"
	case utf8.Valid(b):
		return printable(string(b))
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return "(binary)"
		}
		return "(binary, base64) " + strings.Trim(string(encoded), `"`)
	}
}

// target is what redrive and discard act on.
type target struct {
	What string `arg:"" optional:"" name:"queue-or-id" help:"EXECUTION/ROUTE for those of a queue, the NAME of a named queue or of a topic for those of all that subscribe to it, TOPIC::observer:ID or TOPIC::@GROUP, or a message id."`
	All  bool   `help:"All of all queues."`
}

// chosen is a target that was read: one of a message, sources and all.
type chosen struct {
	message string
	sources []operate.Source
	all     bool
}

func (t *target) choose() (chosen, error) {
	switch {
	case t.All && t.What != "":
		return chosen{}, protocol.Errorf(protocol.CodeInvalidArgs, "%q and --all: give one of them", t.What)
	case t.All:
		return chosen{all: true}, nil
	case t.What == "":
		return chosen{}, protocol.Errorf(protocol.CodeInvalidArgs, "which? EXECUTION/ROUTE, a named queue, a topic, a message id, or --all")
	}
	if id, err := uuid.Parse(t.What); err == nil {
		return chosen{message: id.String()}, nil
	}
	sources, err := operate.Sources(t.What)
	return chosen{sources: sources}, err
}

// none says how what was asked for was read, when there is nothing of it.
func (c *chosen) none(nothing string) string {
	if c.message != "" {
		return nothing + " with the message id " + c.message
	}
	var of []string
	for _, s := range c.sources {
		if s.Topic != "" {
			of = append(of, "of those who subscribe to the topic "+s.Topic)
		} else {
			of = append(of, "of "+s.Queue)
		}
	}
	return strings.TrimSpace(nothing + " " + strings.Join(of, ", or "))
}

// notFound is the error of a message id that nothing is there of. A queue, a
// topic or an execution without any is no error: there is just nothing to do.
func notFound(nothing, next string) error {
	return protocol.Errorf(protocol.CodeNotFound, "%s\n  next: %s lists what there is", nothing, next)
}

// act redrives or discards and says how many.
func (t *target) act(a *app, subject, done string) error {
	of, err := t.choose()
	if err != nil {
		return err
	}
	var reply protocol.DeadActReply
	err = a.during(done, of.dead(a), func() (err error) {
		reply, err = operatedWithin(a, longTimeout, func(ctx context.Context, nc *nats.Conn) (protocol.DeadActReply, error) {
			return operate.ActOnLetters(ctx, nc, subject, of.sources, protocol.DeadActRequest{MessageID: of.message, All: of.all, By: whoAsks()})
		})
		return err
	})
	if err != nil {
		return err
	}
	next := command(a.flags.NATS, "dlq ls")
	if reply.Count+reply.Refused == 0 && of.message != "" {
		return notFound(of.none("there are no dead letters"), next)
	}
	return a.show(reply, func() {
		a.sayf("%s %s", done, plural(reply.Count, "dead letter", "dead letters"))
		if reply.Refused > 0 {
			a.hintf("%s of executions that are closed, and stay", plural(reply.Refused, "dead letter is", "dead letters are"))
		}
		if reply.Count == 0 {
			a.hintf("%s; see what there is: %s", of.none("there are no dead letters"), next)
		}
	})
}

// dead counts the dead letters that are acted on.
func (c *chosen) dead(a *app) func(context.Context) (int64, error) {
	if c.message != "" {
		return nil
	}
	return func(context.Context) (int64, error) {
		page, err := operated(a, func(ctx context.Context, nc *nats.Conn) (protocol.DeadPage, error) {
			return operate.DeadLetters(ctx, nc, operate.Letters{Sources: c.sources, Limit: 1})
		})
		return page.Total, err
	}
}

type dlqRedriveCmd struct{ target }

func (c *dlqRedriveCmd) Run(a *app) error { return c.act(a, protocol.SubjectDeadRedrive, "redriven") }

type dlqDiscardCmd struct{ target }

func (c *dlqDiscardCmd) Run(a *app) error { return c.act(a, protocol.SubjectDeadDiscard, "discarded") }
