package fault_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// One message's life is told in order, after the mesh was killed and when the
// message is gone: each failed attempt with its worker, error and wait, the dead
// letter, who redrove it, and how it ended.
func TestWhyTellsAMessagesLife(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect(client.Name("the-worker"))
	work(t, c, "e", "r", func(_ context.Context, d *client.Delivery) error {
		if d.Generation == 0 {
			return errOnPurpose
		}
		return nil
	}, client.MaxRetries(2), client.Backoff(50*time.Millisecond))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	id := publish(t, c, "e", "r", []byte("x"), client.Header("traceparent", parent))
	harness.Await(t, "it is dead", func() bool { return m.Queue("e", "r").Dead == 1 })
	m.AwaitRest("e", harness.Guard)
	life := onlyLife(t, m, id)
	if life.State != protocol.StateDead || life.Reason != protocol.ReasonFailed || life.Traceparent != parent {
		t.Errorf("the dead letter is %+v", life)
	}
	m.Kill()
	m.Restart()
	if said := m.Run("dlq", "redrive", id); said.Code != 0 {
		t.Fatalf("redrive: %+v", said)
	}
	harness.Await(t, "it is acknowledged", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 1 })
	life = onlyLife(t, m, id)
	if life.Publisher != "the-worker" || life.Worker != "the-worker" || life.WorkerID == "" {
		t.Errorf("it was published by %q and acknowledged by %q (%q)", life.Publisher, life.Worker, life.WorkerID)
	}
	if life.How != protocol.CountAcknowledged || life.EndedAt.IsZero() || life.LeftOut != 0 || len(life.Events) != 3 {
		t.Fatalf("at its end it is %+v", life)
	}
	last := life.PublishedAt
	for i, e := range life.Events[:2] {
		if e.Kind != protocol.EventAttempt || e.Attempt != uint32(i+1) || e.Outcome != protocol.Failed || e.Worker != "the-worker" || e.WorkerID == "" ||
			e.Subscription == "" || e.Error != errOnPurpose.Error() || e.At.Before(last) {
			t.Errorf("attempt %d is told as %+v", i+1, e)
		}
		last = e.At
	}
	if wait := life.Events[0].Due.Sub(life.Events[0].At); wait != 50*time.Millisecond {
		t.Errorf("it waited %v", wait)
	}
	if e := life.Events[2]; e.Kind != protocol.EventRedriven || e.By == "" || e.Generation != 1 || e.At.Before(last) || life.EndedAt.Before(e.At) {
		t.Errorf("the redrive is told as %+v", e)
	}
	var overHTTP operate.Story
	if status := getJSON(t, m.HTTP+"/api/v1/messages/"+id, &overHTTP); status != http.StatusOK || len(overHTTP.Lives) != 1 || len(overHTTP.Lives[0].Events) != 3 {
		t.Errorf("over HTTP: %d %+v", status, overHTTP)
	}
	for _, words := range []string{"published", "attempt 1: failed", "the-worker", "not again before", "redriven by", "published by the-worker", "acknowledged at the-worker"} {
		if said := m.Run("why", id); !strings.Contains(said.Stdout, words) {
			t.Errorf("people are not told %q: %s", words, said.Stdout)
		}
	}
}

// A topic's message has a life in each queue; a discarded one says so; nobody
// knows of one that was never there.
func TestWhyOfTopicsAndTheUnknown(t *testing.T) {
	t.Parallel()
	m := harness.Start(t)
	c := m.Connect(client.Name("both"))
	for id, wanted := range map[string]string{"picky": `{"input.n": {"$gte": 7}}`, "satisfied": `{"input.n": {"$lt": 7}}`} {
		if _, err := c.Observe(t.Context(), "orders", func(context.Context, *client.Delivery) error { return nil }, client.ID(id), client.Filter(wanted)); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{"good": nil, "bad": client.Reject(errOnPurpose)} {
		if _, err := c.Observe(t.Context(), "orders", func(context.Context, *client.Delivery) error { return err }, client.ID(name)); err != nil {
			t.Fatal(err)
		}
	}
	receipt, err := c.Publish(t.Context(), client.Topic("orders"), []byte(`{"n": 6}`))
	if err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "one is dead, one done", func() bool {
		return m.QueueNamed("orders::observer:bad").Dead == 1 && m.QueueNamed("orders::observer:good").Counters[protocol.CountAcknowledged] == 1 &&
			m.QueueNamed("orders::observer:satisfied").Counters[protocol.CountAcknowledged] == 1
	})
	if left := story(t, m, receipt.MessageID).LeftOut; len(left) != 1 || left[0].Queue != "orders::observer:picky" || left[0].Worker != "both" || !strings.Contains(string(left[0].Filters), "$gte") {
		t.Errorf("it was left out by %+v", left)
	}
	if said := m.Run("why", receipt.MessageID); !strings.Contains(said.Stdout, "left out by the filter of both") {
		t.Errorf("people are not told who left it out: %s", said.Stdout)
	}
	states := func() (all []string) {
		for _, l := range story(t, m, receipt.MessageID).Lives {
			all = append(all, l.Queue+" "+l.State+" "+l.How)
		}
		return all
	}
	if got := strings.Join(states(), ", "); got != "orders::observer:bad dead , orders::observer:good ended acknowledged, orders::observer:satisfied ended acknowledged" {
		t.Errorf("its lives are %s", got)
	}
	if said := m.Run("dlq", "discard", receipt.MessageID); said.Code != 0 {
		t.Fatalf("discard: %+v", said)
	}
	if got := strings.Join(states(), ", "); got != "orders::observer:bad ended discarded, orders::observer:good ended acknowledged, orders::observer:satisfied ended acknowledged" {
		t.Errorf("after the discard its lives are %s", got)
	}
	if said := m.Run("why", "0198c5f2-7f5e-7c3a-9b1d-3f2a6c4e8d10"); said.Code != 6 || !strings.Contains(said.Stderr, "the logs go back to") {
		t.Errorf("of an unknown one it says %+v", said)
	}
	if said := m.Run("why", "nonsense"); said.Code != 2 {
		t.Errorf("of nonsense it says %+v", said)
	}
}

func story(t *testing.T, m *harness.Mesh, id string) (s operate.Story) {
	t.Helper()
	said := m.Run("why", id, "--json")
	if err := json.Unmarshal([]byte(said.Stdout), &s); err != nil || said.Code != 0 {
		t.Fatalf("waybill why: %+v", said)
	}
	return s
}

func onlyLife(t *testing.T, m *harness.Mesh, id string) operate.Life {
	t.Helper()
	s := story(t, m, id)
	if len(s.Lives) != 1 || s.Lives[0].Queue != "/queue/e/r" || len(s.Unseen) > 0 {
		t.Fatalf("it has the lives %+v", s)
	}
	return s.Lives[0]
}

func getJSON(t *testing.T, url string, into any) (status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v: %s", url, err, body)
	}
	return answer.StatusCode
}
