package fault_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func startWith(t *testing.T, configuration string) *harness.Mesh {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waybill.yaml")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	return harness.Start(t, "--config", file)
}

func refused(t *testing.T, c *client.Client, route string) bool {
	t.Helper()
	_, err := c.Publish(t.Context(), client.Queue("e", route), []byte("too much"))
	if code := protocol.CodeOf(err); err != nil && code != protocol.CodeQuotaExceeded {
		t.Fatal(err)
	}
	return err != nil
}

// A queue at its limit takes no publish, and what it has, or what comes back to
// it, is handled, retried, dead-lettered and redriven all the same.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	m := startWith(t, "limits: {queue_messages: 3}")
	c := m.Connect()
	h := newHandle()
	w := work(t, c, "e", "r", h.run, client.Concurrency(1), client.Backoff(time.Hour))
	retried := publish(t, c, "e", "r", []byte("fails once"))
	h.next(t)
	h.answer <- errOnPurpose
	dead := publish(t, c, "e", "r", []byte("is rejected"))
	h.next(t)
	h.answer <- client.Reject(errOnPurpose)
	harness.Await(t, "one waits and one is dead", func() bool {
		q := m.Queue("e", "r")
		return q.Waiting == 1 && q.Dead == 1
	})
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		publish(t, c, "e", "r", nil)
	}
	if !refused(t, c, "r") {
		t.Error("a fourth message is in a queue of three")
	}
	if answer := m.Run("pub", "queue", "e", "r", "x"); answer.Code != 3 || !strings.Contains(answer.Stderr, string(protocol.CodeQuotaExceeded)) {
		t.Errorf("the command answers %+v", answer)
	}
	if full := m.Metric("waybill_queue_messages_ratio"); full != 1 {
		t.Errorf("the fullest queue uses %v of its limit", full)
	}
	publish(t, c, "e", "other", nil)

	if answer := m.Run("retry", "now", retried); answer.Code != 0 {
		t.Errorf("the command answers %+v", answer)
	}
	harness.Await(t, "the failed one is back", func() bool { return m.Queue("e", "r").Ready == 4 })
	if n, err := m.Redrive(protocol.DeadActRequest{MessageID: dead}); n != 1 || err != nil {
		t.Errorf("redriven: %d, %v", n, err)
	}
	harness.Await(t, "the redriven one is back", func() bool { return m.Queue("e", "r").Ready == 5 })
	work(t, c, "e", "r", h.run)
	came := make(map[string]*seen)
	for range 5 {
		d := h.next(t)
		came[d.ID] = d
		h.answer <- nil
	}
	same(t, came[retried], retried, 2, 0)
	same(t, came[dead], dead, 1, 1)
	harness.Await(t, "all are handled", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 5 })
	publish(t, c, "e", "r", nil)
}

// The limit of the whole mesh counts what waits and what is dead too; discarding
// makes room.
func TestFullMesh(t *testing.T) {
	t.Parallel()
	m := startWith(t, "limits: {total_messages: 4}")
	c := m.Connect()
	h := newHandle()
	work(t, c, "e", "r", h.run, client.Backoff(time.Hour))
	for _, end := range []error{errOnPurpose, errOnPurpose, client.Reject(errOnPurpose), client.Reject(errOnPurpose)} {
		publish(t, c, "e", "r", []byte("x"))
		h.next(t)
		h.answer <- end
	}
	harness.Await(t, "two wait and two are dead", func() bool {
		q := m.Queue("e", "r")
		return q.Waiting == 2 && q.Dead == 2
	})
	harness.Await(t, "the mesh is full", func() bool {
		full := refused(t, c, "r")
		if !full { // each service tells the others what it holds once a second
			h.next(t)
			h.answer <- nil
		}
		return full
	})
	if n, err := m.Redrive(protocol.DeadActRequest{Queue: "/queue/e/r"}); n != 2 || err != nil {
		t.Errorf("redriven: %d, %v", n, err)
	}
	for range 2 {
		h.next(t)
		h.answer <- nil
	}
	harness.Await(t, "there is room", func() bool { return !refused(t, c, "other") })
}
