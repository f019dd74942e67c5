package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type whyCmd struct {
	ID      string        `arg:"" help:"Message id."`
	Timeout time.Duration `default:"60s" help:"How long the logs may be read." placeholder:"TIME"`
}

func (c *whyCmd) Run(a *app) error {
	nc, err := a.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	story, err := operate.Why(ctx, nc, c.ID)
	if err != nil {
		return unreachable(err)
	}
	return a.show(story, func() { tell(a, &story) })
}

// tell tells a message's life in each queue, line by line in order.
func tell(a *app, s *operate.Story) {
	a.sayf("message %s", s.MessageID)
	for i := range s.Lives {
		l := &s.Lives[i]
		a.sayf("%s", l.Queue)
		for _, line := range lines(l) {
			at := "now"
			if !line.at.IsZero() {
				at = line.at.Local().Format("2006-01-02 15:04:05.000")
			}
			a.sayf("  %-23s  %s", at, printable(line.text))
		}
	}
	for _, one := range s.LeftOut {
		a.sayf("%s\n  %-23s  %s", one.Queue, "when it was published", printable(fmt.Sprintf(
			"left out by the filter of %s (%s): %s", one.Worker, one.WorkerID, short(string(one.Filters), 200))))
	}
	sayAway(a, s.Away)
	if len(s.UnseenQueues) > 0 {
		a.hintf("it may also be among what is being consumed from %s", strings.Join(s.UnseenQueues, ", "))
	}
	if len(s.Unseen) > 0 {
		a.hintf("the logs of %s could not be looked at: something may be missing", strings.Join(s.Unseen, ", "))
	}
}

// line is one step of a life; without a time it is how things are.
type line struct {
	at   time.Time
	text string
}

func lines(l *operate.Life) []line {
	published := "published" + by(l.Publisher) + ", " + plural(int64(l.SizeBytes), "byte", "bytes")
	if l.Group != "" {
		published += ", group " + l.Group
	}
	if l.Traceparent != "" {
		published += ", traceparent " + l.Traceparent
	}
	all := []line{{l.PublishedAt, published}}
	if l.LeftOut > 0 {
		all = append(all, line{l.PublishedAt, fmt.Sprintf("%s, left out: the last %d are kept", plural(int64(l.LeftOut), "event", "events"), len(l.Events))})
	}
	for i := range l.Events {
		e := &l.Events[i]
		all = append(all, line{e.At, happened(e)})
	}
	return append(all, end(l))
}

func happened(e *protocol.StoryEvent) string {
	switch e.Kind {
	case protocol.EventAttempt:
		return attempted(e)
	case protocol.EventRedriven:
		return "redriven" + by(e.By) + inTrace(e)
	case protocol.EventReleased:
		return "let go before its time" + by(e.By)
	case protocol.EventFollowed:
		return "dead-lettered: " + short(e.Error, 200)
	default:
		return e.Kind
	}
}

func attempted(e *protocol.StoryEvent) string {
	text := fmt.Sprintf("attempt %d", e.Attempt)
	if e.Generation > 0 {
		text += fmt.Sprintf(" after redrive %d", e.Generation)
	}
	text += ": " + string(e.Outcome)
	if e.TookMs > 0 {
		text += " after " + milliseconds(e.TookMs)
	}
	if e.Worker != "" {
		text += fmt.Sprintf(" at %s (%s)", e.Worker, e.WorkerID)
	}
	if e.Error != "" {
		text += ": " + short(e.Error, 200)
	}
	if !e.Due.IsZero() {
		text += "; not again before " + e.Due.Local().Format("15:04:05.000")
	}
	return text + inTrace(e)
}

func by(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}

func inTrace(e *protocol.StoryEvent) string {
	if e.TraceID == "" {
		return ""
	}
	return fmt.Sprintf(" [trace %s span %s]", e.TraceID, e.SpanID)
}

// end is how it ended, or where it is.
func end(l *operate.Life) line {
	switch {
	case l.How != "":
		return line{l.EndedAt, ended(l)}
	case l.State == protocol.StateEnded && l.Dest != "":
		return line{l.EndedAt, fmt.Sprintf("handed over to %s; what came after that is in no log any more", l.Dest)}
	case l.State == protocol.StateEnded && l.EndedAt.IsZero():
		return line{text: "ended; how is being recorded"}
	case l.State == protocol.StateEnded:
		return line{l.EndedAt, "ended"}
	}
	text := state(l)
	if l.Place != "" {
		text += ", in " + l.Place
	}
	return line{text: text}
}

// ended is how it ended, and at whose hands.
func ended(l *operate.Life) string {
	text := l.How
	if l.Worker != "" || l.WorkerID != "" {
		text += fmt.Sprintf(" at %s (%s), attempt %d", l.Worker, l.WorkerID, l.Attempt)
	}
	if l.TookMs > 0 {
		text += " after " + milliseconds(l.TookMs)
	}
	return text
}

func state(l *operate.Life) string {
	switch l.State {
	case protocol.StateMoving:
		return "on its way to " + l.Dest
	case protocol.StateWaiting:
		return fmt.Sprintf("waits for attempt %d until %s", l.Attempt, l.Due.Local().Format("2006-01-02 15:04:05.000"))
	case protocol.StateDead:
		return fmt.Sprintf("a dead letter (%s): %s", l.Reason, short(l.Error, 200))
	}
	text := strings.ReplaceAll(l.State, "_", " ")
	if l.Entry == nil {
		return text
	}
	if l.Entry.Worker != "" {
		text += fmt.Sprintf(" at %s (%s), attempt %d, since %s", l.Entry.Worker, l.Entry.WorkerID, l.Attempt, ago(l.Entry.Since))
	} else {
		text += fmt.Sprintf(" for attempt %d; %s", l.Attempt, plural(int64(l.Entry.Consumers), "consumer", "consumers"))
	}
	if !l.Entry.Due.IsZero() {
		text += ", until " + l.Entry.Due.Local().Format("15:04:05.000")
	}
	if l.Entry.HandedBack > 0 {
		text += fmt.Sprintf(", handed back %s", plural(int64(l.Entry.HandedBack), "time", "times"))
	}
	return text
}

// whoAsks names the person for the stories of what they act on.
func whoAsks() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return clipped(name, 100)
}

func clipped(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
