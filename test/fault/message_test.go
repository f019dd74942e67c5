package fault_test

import (
	"bytes"
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// On one mesh, each with an execution of its own.
func TestOneMessage(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	for name, test := range map[string]func(t *testing.T, m *harness.Mesh){
		"content":             keepsContent,
		"dedup":               dedupSwallowsNothingElse,
		"hugeBackoff":         hugeBackoff,
		"freshFlow":           failuresDoNotBlock,
		"commandBudget":       commandBudget,
		"commandRejects":      commandRejects,
		"immediateRedriveAll": redriveAndFailAgain,
		"manyOperators":       manyOperators,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, m.For(t))
		})
	}
}

// content is what must be equal wherever a message is seen.
type content struct {
	headers map[string]string
	data    []byte
}

func all256() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// Payload and headers are the same bytes in every attempt, in the dead letter
// and after a redrive.
func keepsContent(t *testing.T, m *harness.Mesh) {
	c := m.Connect()
	came := make(chan content, 1)
	work(t, c, "content", "r", func(_ context.Context, d *client.Delivery) error {
		came <- content{d.Headers(), bytes.Clone(d.Data)}
		switch {
		case d.Generation > 0:
			return nil
		case d.Attempt == 1:
			return errOnPurpose
		default:
			return client.Reject(errOnPurpose)
		}
	}, client.Concurrency(1), client.Backoff(time.Millisecond))
	headers := map[string]string{
		"X-Text": "ä b", "x-empty": "", "x-correlation-id": "own", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"x-binary": "\x01\x7f\xc3\x28\xff", "X-Tab": "a\tb", "X-CASE": "1", "x-case": "2",
	}
	for name, data := range map[string][]byte{
		"empty": {}, "null": []byte("null"), "binary": all256(), "large": bytes.Repeat([]byte("0123456789abcdef"), protocol.DefaultMaxPayload/16),
	} {
		id := publish(t, c, "content", "r", data, func(message *client.Message) { message.Headers = headers })
		want := content{headers, data}
		for _, when := range []string{"first", "again"} {
			wantContent(t, name+" "+when, harness.Receive(t, "a delivery", came), want)
		}
		harness.Await(t, "it is dead", func() bool { return m.Queue("content", "r").Dead == 1 })
		if letter := m.Letter(id); !bytes.Equal(letter.Payload, data) || letter.Headers["X-Text"][0] != "ä b" || letter.SizeBytes != len(data) {
			t.Errorf("%s: dead letter with headers %v and %d bytes (%d)", name, letter.Headers, len(letter.Payload), letter.SizeBytes)
		}
		if n, err := m.Redrive(protocol.DeadActRequest{MessageID: id}); n != 1 || err != nil {
			t.Fatalf("%s: redriven %d, %v", name, n, err)
		}
		wantContent(t, name+" redriven", harness.Receive(t, "a delivery", came), want)
	}
}

func wantContent(t *testing.T, when string, got, want content) {
	t.Helper()
	if !bytes.Equal(got.data, want.data) {
		t.Errorf("%s: payload of %d bytes, want %d", when, len(got.data), len(want.data))
	}
	if !maps.Equal(got.headers, want.headers) {
		t.Errorf("%s: headers %q, want %q", when, got.headers, want.headers)
	}
}

// A message with a dedup id that fails, dies and is redriven at once is no
// duplicate of itself.
func dedupSwallowsNothingElse(t *testing.T, m *harness.Mesh) {
	c := m.Connect()
	h := newHandle()
	work(t, c, "dedup", "r", h.run, client.Backoff(time.Millisecond))
	id := publish(t, c, "dedup", "r", []byte("x"), client.DedupID("one"))
	same(t, h.next(t), id, 1, 0)
	h.answer <- errOnPurpose
	same(t, h.next(t), id, 2, 0)
	h.answer <- client.Reject(errOnPurpose)
	harness.Await(t, "it is dead", func() bool { return m.Queue("dedup", "r").Dead == 1 })
	if n, err := m.Redrive(protocol.DeadActRequest{MessageID: id}); n != 1 || err != nil {
		t.Fatalf("redriven: %d, %v", n, err)
	}
	same(t, h.next(t), id, 1, 1)
	h.answer <- nil
	if again := publish(t, c, "dedup", "r", []byte("x"), client.DedupID("one")); again != id {
		t.Errorf("a duplicate has the id %s, want %s", again, id)
	}
	m.AwaitRest("dedup", harness.Guard)
	h.none(t)
}

// The largest backoff that is taken makes a message wait, not fall over into the
// past; a larger one is refused by name.
func hugeBackoff(t *testing.T, m *harness.Mesh) {
	const largest = 365 * 24 * time.Hour
	c := m.Connect()
	h := newHandle()
	_, err := c.Work(t.Context(), "huge", "r", h.run, client.Backoff(math.MaxInt64))
	wantCode(t, "the largest backoff there is", err, protocol.CodeInvalidArgs)
	work(t, c, "huge", "r", h.run, client.Backoff(largest), client.MaxRetries(protocol.MaxMaxRetries))
	publish(t, c, "huge", "r", nil)
	h.next(t)
	h.answer <- errOnPurpose
	harness.Await(t, "it waits", func() bool { return m.Queue("huge", "r").Waiting == 1 })
	h.none(t)
}

// As many failures as may run at once, all waiting for long, hold nobody up.
func failuresDoNotBlock(t *testing.T, m *harness.Mesh) {
	const concurrency, fresh = 2, 100
	c := m.Connect()
	handled := make(chan struct{}, fresh)
	work(t, c, "fresh", "r", func(_ context.Context, d *client.Delivery) error {
		if string(d.Data) == "fails" {
			return errOnPurpose
		}
		handled <- struct{}{}
		return nil
	}, client.Concurrency(concurrency), client.Backoff(time.Hour))
	for range 2 * concurrency {
		publish(t, c, "fresh", "r", []byte("fails"))
	}
	for range fresh {
		publish(t, c, "fresh", "r", []byte("fresh"))
	}
	for range fresh {
		harness.Receive(t, "a fresh one", handled)
	}
}

// `waybill work --exec` keeps the budget it is given, to the number.
func commandBudget(t *testing.T, m *harness.Mesh) {
	for _, budget := range []string{"1", "2", "5"} {
		execution := "budget-" + budget
		log := filepath.Join(t.TempDir(), "log")
		m.Spawn("work", execution, "r", "--max-retries", budget, "--backoff-ms", "1",
			"--exec", "echo $WAYBILL_ATTEMPT >> "+log+"; echo why >&2; exit 3")
		if answer := m.Run("pub", "queue", execution, "r", "x"); answer.Code != 0 {
			t.Fatalf("%+v", answer)
		}
		harness.Await(t, "it is dead", func() bool { return m.Queue(execution, "r").Dead == 1 })
		written, err := os.ReadFile(log)
		if want := attempts[budget]; err != nil || string(written) != want {
			t.Errorf("budget %s: attempts %q, want %q (%v)", budget, written, want, err)
		}
		if letter := m.Dead("/queue/" + execution + "/r")[0]; !strings.Contains(letter.Error, "why") || letter.Reason != protocol.ReasonFailed {
			t.Errorf("budget %s: dead letter %+v", budget, letter)
		}
	}
}

var attempts = map[string]string{"1": "1\n", "2": "1\n2\n", "5": "1\n2\n3\n4\n5\n"}

// Exit code 65 rejects.
func commandRejects(t *testing.T, m *harness.Mesh) {
	m.Spawn("work", "rejects", "r", "--exec", "exit 65")
	m.Run("pub", "queue", "rejects", "r", "x")
	harness.Await(t, "it is dead", func() bool { return m.Queue("rejects", "r").Dead == 1 })
	if letter := m.Dead("/queue/rejects/r")[0]; letter.Attempts != 1 || letter.Reason != protocol.ReasonRejected {
		t.Errorf("dead letter %+v", letter)
	}
	if answer := m.Run("dlq", "ls", "rejects/r", "--json"); !strings.Contains(answer.Stdout, "/queue/rejects/r") {
		t.Errorf("dlq ls: %+v", answer)
	}
}

// Redriving all takes what is dead then, not what dies meanwhile: it ends, also
// if everything fails again at once.
func redriveAndFailAgain(t *testing.T, m *harness.Mesh) {
	const messages = 500
	c := m.Connect()
	work(t, c, "again", "r", func(context.Context, *client.Delivery) error { return client.Reject(errOnPurpose) }, client.Concurrency(50))
	for range messages {
		publish(t, c, "again", "r", nil)
	}
	dead := func() bool { return m.Queue("again", "r").Dead == messages }
	harness.Await(t, "all are dead", dead)
	if n, err := m.Redrive(protocol.DeadActRequest{Queue: "/queue/again/r"}); n != messages || err != nil {
		t.Errorf("redriven %d, %v", n, err)
	}
	m.AwaitRest("again", harness.Guard)
	for _, letter := range m.Dead("/queue/again/r") {
		if letter.Generation != 1 {
			t.Errorf("%s is of generation %d", letter.MessageID, letter.Generation)
		}
	}
	if !dead() {
		t.Errorf("not all are dead again: %+v", m.Queue("again", "r"))
	}
	counters := m.Queue("again", "r").Counters
	if counters[protocol.CountRedriven] != messages || counters[protocol.CountDeadLettered] != 2*messages {
		t.Errorf("counted %v", counters)
	}
}

// Two redrives and a discard of the same dead letters at once: each letter goes
// one way, once.
func manyOperators(t *testing.T, m *harness.Mesh) {
	const messages = 2000
	c := m.Connect()
	var handled atomic.Int64
	work(t, c, "operators", "r", func(_ context.Context, d *client.Delivery) error {
		if d.Generation == 0 {
			return client.Reject(errOnPurpose)
		}
		handled.Add(1)
		return nil
	}, client.Concurrency(100))
	all := make([]client.Message, messages)
	for i := range all {
		all[i].To = client.Queue("operators", "r")
	}
	if _, err := c.PublishMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "all are dead", func() bool { return m.Queue("operators", "r").Dead == messages })
	var redriven, discarded atomic.Int64
	var acting sync.WaitGroup
	for i, act := range []func(protocol.DeadActRequest) (int64, error){m.Redrive, m.Discard, m.Redrive} {
		acting.Go(func() {
			n, err := act(protocol.DeadActRequest{Queue: "/queue/operators/r"})
			if err != nil {
				t.Error(err)
			}
			[]*atomic.Int64{&redriven, &discarded, &redriven}[i].Add(n)
		})
	}
	acting.Wait()
	q := m.AwaitRest("operators", harness.Guard)["/queue/operators/r"]
	t.Logf("%d redriven, %d discarded", redriven.Load(), discarded.Load())
	if redriven.Load()+discarded.Load() != messages || handled.Load() != redriven.Load() || q.Dead != 0 {
		t.Errorf("%d redriven, %d of them handled, %d discarded, of %d; %d are dead", redriven.Load(), handled.Load(), discarded.Load(), messages, q.Dead)
	}
}
