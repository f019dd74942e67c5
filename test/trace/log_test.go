package trace_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// log keeps what is logged.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A busy run with everything logged: messages fail, time out, are rejected, are
// dead-lettered, redriven and discarded, and the mesh is killed meanwhile. No
// line has a payload; those about a message have its ids.
func TestNoLogHasAPayload(t *testing.T) {
	const payload = "SECRET-PAYLOAD-7f3a"
	c := harness.StartCollector(t)
	m := harness.Start(t, "--log-level", "debug")
	said := &log{}
	cl := m.Connect(client.Logger(slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	handler := func(ctx context.Context, d *client.Delivery) error {
		switch d.Header("do") {
		case "fail":
			return errors.New("it does not work")
		case "reject":
			return client.Reject(errors.New("it never will"))
		case "wait":
			<-ctx.Done()
			return ctx.Err()
		default:
			return nil
		}
	}
	retries := []client.WorkOption{client.MaxRetries(2), client.Backoff(time.Millisecond)}
	for route, opts := range map[string][]client.WorkOption{"step": retries, "slow": append(retries, client.Timeout(300*time.Millisecond))} {
		if _, err := cl.Work(t.Context(), "run", route, handler, opts...); err != nil {
			t.Fatal(err)
		}
	}
	const trace = "eeeeeeee16cd43dd8448eb211c80319c"
	send := func(what string) {
		t.Helper()
		route := "step"
		if what == "wait" {
			route = "slow"
		}
		if _, err := cl.Publish(t.Context(), client.Queue("run", route), []byte(payload), client.Header("do", what),
			client.Header(protocol.HeaderTraceparent, parent(trace, appSpan))); err != nil {
			t.Fatal(err)
		}
	}
	round := func() {
		t.Helper()
		for _, what := range []string{"", "fail", "reject", "wait"} {
			send(what)
		}
		harness.Await(t, "three are dead letters", func() bool { return len(m.Dead("")) == 3 })
	}
	round()
	if n, err := m.Redrive(protocol.DeadActRequest{All: true}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	harness.Await(t, "they are dead letters again", func() bool { return len(m.Dead("")) == 3 })
	if n, err := m.Discard(protocol.DeadActRequest{All: true}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	logs := m.Process().Output()
	m.Kill()
	m.Restart()
	round()
	logs += m.Process().Output() + said.String()
	if strings.Contains(logs, payload) {
		t.Errorf("a payload is in the log:\n%s", logs)
	}
	about := regexp.MustCompile(`a delivery was not acknowledged.* message_id=[0-9a-f-]{36} .*trace_id=` + trace + ` span_id=[0-9a-f]{16}`)
	if !about.MatchString(said.String()) {
		t.Errorf("no line about a failed delivery has its message and trace:\n%s", said)
	}
	for _, s := range c.All() {
		if strings.Contains(s.Span.String(), payload) {
			t.Errorf("a payload is in the span %v", s)
		}
	}
}
