package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// The traces that the test's programs are started in.
const (
	appTrace      = "0af7651916cd43dd8448eb211c80319c"
	appSpan       = "b7ad6b7169203331"
	operatorTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	operatorSpan  = "00f067aa0ba902b7"
)

func parent(trace, span string) string { return "00-" + trace + "-" + span + "-01" }

// One message is published, fails twice, waits, is dead-lettered, redriven and
// handled, by programs of which each is a process of its own: its traces are one
// linked picture.
func TestOnePicture(t *testing.T) {
	c := harness.StartCollector(t)
	m := harness.StartSeparate(t, nil)
	dir := t.TempDir()
	command := fmt.Sprintf(`echo $TRACEPARENT >> %[1]s/parents; test -e %[1]s/works`, dir)
	worker := m.Spawn("work", "run", "step", "--max-retries", "2", "--backoff-ms", "20", "--exec", command)

	t.Setenv("TRACEPARENT", parent(appTrace, appSpan))
	t.Setenv("BAGGAGE", "tenant=a")
	if published := m.Run("pub", "queue", "run", "step", "hello"); published.Code != 0 {
		t.Fatal(published.Stderr)
	}
	var letter protocol.DeadLetter
	harness.Await(t, "the message is a dead letter", func() bool {
		letters := m.Dead("/queue/run/step")
		if len(letters) == 1 {
			letter = letters[0]
		}
		return len(letters) == 1
	})
	if got := m.Letter(letter.MessageID).Headers["baggage"]; !slices.Equal(got, []string{"tenant=a"}) {
		t.Errorf("the letter's baggage is %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "works"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TRACEPARENT", parent(operatorTrace, operatorSpan))
	if redriven := m.Run("dlq", "redrive", letter.MessageID); redriven.Code != 0 {
		t.Fatal(redriven.Stderr)
	}
	harness.Await(t, "the message is handled", func() bool { return len(lines(t, dir)) == 3 })
	m.AwaitRest("run", harness.Guard)

	// Everything is told to end while spans wait to be sent: none is lost.
	worker.Terminate()
	worker.Exit(harness.Guard)
	for _, service := range slices.Backward(harness.Services) {
		m.Instance(service + "-1").End()
	}
	p := pictureOf(t, c)
	p.check(t, letter.MessageID)
	p.checkRedrive(t, c, letter.MessageID)
	for i, line := range lines(t, dir) {
		if line != parent(appTrace, p.handled[i].ID) {
			t.Errorf("attempt %d ran in %s, its span is %s", i+1, line, p.handled[i].ID)
		}
	}
}

func lines(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "parents"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// picture is the message's own trace.
type picture struct {
	publish, dead, wait *harness.Span
	attempts, handled   []*harness.Span
}

func pictureOf(t *testing.T, c *harness.Collector) *picture {
	t.Helper()
	one := func(name string) *harness.Span { return c.Await(t, 1, appTrace, name)[0] }
	return &picture{
		publish: one("publish "), wait: one("wait "), dead: one("dead_letter "),
		attempts: c.Await(t, 3, appTrace, "deliver "), handled: c.Await(t, 3, appTrace, "process "),
	}
}

func (p *picture) check(t *testing.T, id string) {
	t.Helper()
	const place = "/queue/{execution}/step"
	expect := func(what string, s *harness.Span, kind otlp.Span_SpanKind, service, below string) {
		t.Helper()
		if s.Service != service || s.Parent != below || s.GetKind() != kind {
			t.Errorf("%s is %v of %s below %s, want %v of %s below %s", what, s.GetKind(), s.Service, s.Parent, kind, service, below)
		}
		for key, want := range map[string]any{
			"messaging.system": "waybill", "messaging.message.id": id, "messaging.destination.name": "/queue/run/step",
			"messaging.destination.template": place, "messaging.operation.name": strings.TrimSuffix(s.GetName(), " "+place),
		} {
			if got := s.Attribute(key); got != want {
				t.Errorf("%s has %s %v, want %v", what, key, got, want)
			}
		}
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s ends before it begins", what)
		}
	}
	expect("the publish", p.publish, otlp.Span_SPAN_KIND_PRODUCER, "waybill", appSpan)
	expect("the wait", p.wait, otlp.Span_SPAN_KIND_INTERNAL, "waybill-retry", p.attempts[0].ID)
	expect("the dead letter", p.dead, otlp.Span_SPAN_KIND_INTERNAL, "waybill-dlq", p.attempts[1].ID)
	for i, s := range p.attempts {
		expect("an attempt", s, otlp.Span_SPAN_KIND_CONSUMER, "waybill-router", p.publish.ID)
		expect("a handler", p.handled[i], otlp.Span_SPAN_KIND_INTERNAL, "waybill", s.ID)
	}
	if ms := (p.wait.GetEndTimeUnixNano() - p.wait.GetStartTimeUnixNano()) / 1e6; ms < 20 {
		t.Errorf("the wait took %d ms, less than the delay", ms)
	}
	for i, want := range []struct {
		outcome, errorType string
		attempt            int64
	}{{"failed", "failed", 1}, {"failed", "failed", 2}, {"acknowledged", "", 1}} {
		s := p.attempts[i]
		errorType, _ := s.Attribute("error.type").(string)
		if s.Attribute("waybill.outcome") != want.outcome || errorType != want.errorType || s.Attribute("waybill.message.attempt") != want.attempt {
			t.Errorf("attempt %d says %v", i+1, s.GetAttributes())
		}
	}
	if links := p.attempts[0].Linked; !slices.Equal(links, []string{p.publish.ID}) {
		t.Errorf("the first attempt links to %v, want the publish", links)
	}
	if links := p.attempts[1].Linked; !slices.Equal(links, []string{p.publish.ID, p.attempts[0].ID}) {
		t.Errorf("the second attempt links to %v, want the publish and the first", links)
	}
}

// checkRedrive looks at the operator's trace, and at how the two refer to each
// other.
func (p *picture) checkRedrive(t *testing.T, c *harness.Collector, id string) {
	t.Helper()
	redrives := c.Await(t, 2, operatorTrace, "redrive")
	asked, redrive := redrives[0], redrives[1]
	if asked.Parent != operatorSpan || asked.Service != "waybill-dlq" || asked.GetKind() != otlp.Span_SPAN_KIND_SERVER || asked.Attribute("waybill.message.count") != int64(1) {
		t.Errorf("the request is %v below %s of %s", asked, asked.Parent, asked.Service)
	}
	if redrive.Parent != asked.ID || redrive.GetKind() != otlp.Span_SPAN_KIND_PRODUCER || redrive.Attribute("messaging.message.id") != id {
		t.Errorf("the redrive is %v below %s", redrive, redrive.Parent)
	}
	if !slices.Equal(redrive.Linked, []string{p.attempts[1].ID}) {
		t.Errorf("the redrive links to %v, want the failure %s", redrive.Linked, p.attempts[1].ID)
	}
	if links := p.attempts[2].Linked; !slices.Equal(links, []string{p.publish.ID, p.attempts[1].ID, redrive.ID}) {
		t.Errorf("the attempt after the redrive links to %v, want the publish, the failure and the redrive", links)
	}
}
