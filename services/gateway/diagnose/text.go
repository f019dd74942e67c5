package diagnose

import (
	"fmt"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Text is the report for people, one line a route or topic.
func (r *Report) Text() string {
	width := 0
	for i := range r.Lines {
		width = max(width, len(r.Lines[i].what()))
	}
	var b strings.Builder
	for i := range r.Lines {
		fmt.Fprintln(&b, r.Lines[i].text(width))
		for _, text := range r.Lines[i].Unmet {
			fmt.Fprintln(&b, "unmet   "+oneLine(text))
		}
	}
	for i := range r.Brokers {
		fmt.Fprintln(&b, brokerText(&r.Brokers[i]))
	}
	return b.String()
}

func brokerText(b *protocol.BrokerInfo) string {
	what := fmt.Sprintf("broker %s  %s at %s  %s", b.Name, b.Kind, b.Place, b.State)
	switch {
	case b.Away == "":
		return "ok      " + what
	case isMissing(*b):
		return "FAILED  " + what + "  " + oneLine(b.Away)
	}
	return "away    " + what + "  " + oneLine(b.Away)
}

// what is the route, or the topic as /topic/<topic>.
func (l *Line) what() string {
	if l.Topic != "" {
		return "/topic/" + l.Topic
	}
	return l.Route
}

func (l *Line) text(width int) string {
	what := fmt.Sprintf("%-*s  %s", width, l.what(), l.extent())
	if !l.OK {
		return fmt.Sprintf("FAILED  %s  %s", what, oneLine(l.Error.Error()))
	}
	return fmt.Sprintf("ok      %s  publish %.1f ms, consume %.1f ms", what, l.PublishMs, l.ConsumeMs)
}

// extent says what the line stands for.
func (l *Line) extent() string {
	text := fmt.Sprintf("%d %s on %d %s", l.Queues, plural(l.Queues, "queue"), len(l.Lanes), plural(len(l.Lanes), "lane"))
	if len(l.On) > 0 {
		text += ", on " + strings.Join(l.On, ", ")
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
