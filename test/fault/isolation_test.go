package fault_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/test/harness"
)

var (
	neighbours = []string{"a", "aa", "A", "a-b", "a_b", "ab", "-", "_", "queue", "topic", "E", strings.Repeat("x", 64), strings.Repeat("x", 63)}
	impossible = []string{"", "*", ">", "a.b", "a.*", "a b", "a\tb", "a/b", "a:b", "ä", "$SYS", "a>", strings.Repeat("x", 65)}
)

// Executions whose ids look like each other's, with equal routes on one mesh:
// no message crosses, whether it is fresh, retried, dead or redriven.
func TestNeighboursDoNotMeet(t *testing.T) {
	t.Parallel()
	const messages = 20
	m := harness.Start(t)
	c := m.Connect()
	n := &neighbourhood{m: m, count: make(map[string]int)}
	for _, execution := range neighbours {
		work(t, c, execution, "r", n.handle(t, execution), client.Concurrency(messages), client.Backoff(time.Millisecond))
	}
	for i := range messages {
		for _, execution := range neighbours {
			kind := []string{"fails once ", "rejected ", "fine "}[i%3]
			publish(t, c, execution, "r", []byte(kind+execution), client.Header("owner", execution))
		}
	}
	dead := (messages + 1) / 3
	for _, execution := range neighbours {
		if q := m.AwaitRest(execution, harness.Guard)[scope.ScopedName(execution, "r")]; q.Dead != int64(dead) {
			t.Errorf("%s has %d dead, want %d", execution, q.Dead, dead)
		}
	}
	before := n.counts()
	for i, execution := range neighbours {
		redriven, err := m.Redrive(protocol.DeadActRequest{Queue: scope.ScopedName(execution, "r")})
		if err != nil || redriven != int64(dead) {
			t.Errorf("%s: %d redriven, %v", execution, redriven, err)
		}
		m.AwaitRest(execution, harness.Guard)
		before[execution] += dead
		if after := n.counts(); !maps.Equal(before, after) {
			t.Fatalf("redrive of %s (%d): handled %v, want %v", execution, i, after, before)
		}
	}
}

// neighbourhood counts what each execution has handled.
type neighbourhood struct {
	m     *harness.Mesh
	mu    sync.Mutex
	count map[string]int
}

func (n *neighbourhood) counts() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.count)
}

func (n *neighbourhood) handle(t *testing.T, execution string) client.Handler {
	return func(_ context.Context, d *client.Delivery) error {
		n.mu.Lock()
		n.count[execution]++
		n.mu.Unlock()
		kind, owner, _ := cutLast(string(d.Data), " ")
		if owner != execution || d.Header("owner") != execution || d.Execution != execution {
			t.Errorf("%s was given %q of %s", execution, d.Data, d.Header("owner"))
		}
		switch {
		case kind == "fails once" && d.Attempt == 1:
			return errOnPurpose
		case kind == "rejected" && d.Generation == 0:
			return client.Reject(errOnPurpose)
		default:
			return nil
		}
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Many executions of one pipeline at once, each a program of its own: every
// message is handled, by its own.
func TestManyExecutions(t *testing.T) {
	t.Parallel()
	const executions, routes, messages = 50, 20, 3
	m := harness.Start(t)
	handled := make(chan struct{}, executions*routes*messages)
	var starting errgroup.Group
	for e := range executions {
		c := m.Connect()
		starting.Go(func() error { return workRoutes(t, c, fmt.Sprintf("run-%d", e), routes, handled) })
	}
	if err := starting.Wait(); err != nil {
		t.Fatal(err)
	}
	var all []client.Message
	for i := range executions * routes * messages {
		execution, route := fmt.Sprintf("run-%d", i%executions), fmt.Sprintf("step.%d", i/executions%routes)
		all = append(all, client.Message{To: client.Queue(execution, route), Data: []byte(execution + "/" + route)})
	}
	if _, err := m.Connect().PublishMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for range all {
		harness.Receive(t, "a delivery", handled)
	}
	m.AwaitRest("", harness.Guard)
	if n := len(handled); n != 0 {
		t.Errorf("%d more than were published", n)
	}
}

// workRoutes works all routes of an execution.
func workRoutes(t *testing.T, c *client.Client, execution string, routes int, handled chan<- struct{}) error {
	t.Helper()
	for r := range routes {
		route := fmt.Sprintf("step.%d", r)
		_, err := c.Work(t.Context(), execution, route, func(_ context.Context, d *client.Delivery) error {
			if string(d.Data) != execution+"/"+route {
				t.Errorf("%s of %s was given %q", route, execution, d.Data)
			}
			handled <- struct{}{}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// What is no execution id is refused with a code by whoever is asked, nothing is
// stored, and a neighbour works on.
func TestImpossibleExecutions(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect()
	h := newHandle()
	work(t, c, "a", "r", h.run)
	before := m.Queues("")
	for _, execution := range impossible {
		_, err := c.Publish(t.Context(), client.Queue(execution, "r"), nil)
		wantCode(t, "publish to "+execution, err, protocol.CodeInvalidName)
		_, err = c.Work(t.Context(), execution, "r", h.run)
		wantCode(t, "work on "+execution, err, protocol.CodeInvalidName)
		for _, command := range [][]string{{"pub", "queue", "--", execution, "r", "x"}, {"work", "--", execution, "r"}} {
			if answer := m.Run(command...); answer.Code != 3 || !strings.Contains(answer.Stderr, string(protocol.CodeInvalidName)) {
				t.Errorf("%q: %+v", command, answer)
			}
		}
	}
	for _, queue := range []string{"/queue/*/r", "/queue/>/r", "/queue/a/*", "/queue/", "*", ">", "a"} {
		if n, err := m.Redrive(protocol.DeadActRequest{Queue: queue}); n != 0 {
			t.Errorf("redrive of %s: %d, %v", queue, n, err)
		}
	}
	rawly(t, m)
	if after := m.Queues(""); len(after) != len(before) {
		t.Errorf("queues %v, before %v", after, before)
	}
	h.none(t)
	id := publish(t, c, "a", "r", []byte("x"))
	same(t, h.next(t), id, 1, 0)
	h.answer <- nil
}

// rawly does what no SDK would: it publishes on subjects that are no names and
// declares a worker of everything.
func rawly(t *testing.T, m *harness.Mesh) {
	t.Helper()
	nc, err := nats.Connect(m.URL, nats.SkipSubjectValidation())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, name := range []string{"*.r", ">", "a.*", "a.>", "*.*", "a", "a.r.dlq", "a.b/c", strings.Repeat("x", 65) + ".r"} {
		wantRefusal(t, nc, protocol.SubjectPublishQueue+name, nil)
	}
	for _, execution := range impossible {
		wantRefusal(t, nc, protocol.SubjectHello, protocol.Hello{
			WorkerID: "0123456789012345678901", Revision: 1,
			Subscriptions: []protocol.SubscriptionSpec{{Ref: "1", Execution: execution, Route: "r"}},
		})
	}
}

func wantRefusal(t *testing.T, nc *nats.Conn, subject string, body any) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := nc.Request(subject, data, harness.Guard)
	if err != nil {
		t.Errorf("%s %s: %v", subject, data, err)
		return
	}
	if e := protocol.ParseErrorBody(answer.Data); e == nil || e.Code != protocol.CodeInvalidName {
		t.Errorf("%s %s: answered %s", subject, data, answer.Data)
	}
}

func wantCode(t *testing.T, what string, err error, code protocol.Code) {
	t.Helper()
	if protocol.CodeOf(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}
