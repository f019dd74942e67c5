// Package diagnosis_test asks running meshes whether messages get through.
package diagnosis_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const path = "/api/v1/system/mq-diagnostic"

// web keeps no connection that would count as left behind.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// diagnose asks the mesh's gateway.
func diagnose(t *testing.T, m *harness.Mesh, query, accept string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.HTTP+path+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	answer, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// diagnosed asks until all get through, which on a machine that is busy with other
// things may not be at once.
func diagnosed(t *testing.T, m *harness.Mesh, query, accept string) (body string) {
	t.Helper()
	harness.Await(t, "a diagnosis finds that all get through", func() (ok bool) {
		status, text := diagnose(t, m, query, accept)
		if ok = status == http.StatusOK; !ok {
			t.Logf("%d\n%s", status, text)
		}
		body = text
		return ok
	})
	return body
}

// subscribed subscribes to three routes, one of them in two executions, and to a
// topic in two ways; called counts the handlers' calls.
func subscribed(t *testing.T, c *client.Client) (called *atomic.Int64) {
	t.Helper()
	called = &atomic.Int64{}
	handle := func(context.Context, *client.Delivery) error { called.Add(1); return nil }
	for _, at := range [][2]string{{"run-1", "parse"}, {"run-2", "parse"}, {"run-1", "index.words"}, {"run-1", "mail"}} {
		if _, err := c.Work(t.Context(), at[0], at[1], handle); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Observe(t.Context(), "orders.created", handle, client.ID("billing")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Listen(t.Context(), "orders.created", handle); err != nil {
		t.Fatal(err)
	}
	return called
}

type report struct {
	OK    bool   `json:"ok"`
	Lines []line `json:"lines"`
}

type line struct {
	Route   string   `json:"route"`
	Topic   string   `json:"topic"`
	Queues  int      `json:"queues"`
	Lanes   []string `json:"lanes"`
	OK      bool     `json:"ok"`
	Publish float64  `json:"publish_ms"`
	Consume float64  `json:"consume_ms"`
	Error   *struct {
		Code string `json:"code"`
	} `json:"error"`
}

func parse(t *testing.T, text string) (r report) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return r
}

// Every route and topic has one line, no handler is called, and nothing is left.
func TestDiagnosisOfEveryRoute(t *testing.T) {
	m := harness.Start(t)
	if text := diagnosed(t, m, "", ""); !regexp.MustCompile(`^ok +diagnosis +0 queues on 16 lanes .*\n$`).MatchString(text) {
		t.Errorf("of a mesh without work:\n%s", text)
	}
	called := subscribed(t, m.Connect())
	if _, err := m.Connect().Publish(t.Context(), client.Queue("run-1", "mail"), nil); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the one message is handled", func() bool { return called.Load() == 1 })
	harness.Await(t, "and counted", func() bool { return m.Stats()["router"].Counters["acknowledged"] == 1 })

	before := m.Stats()["router"].Counters
	text := diagnosed(t, m, "", "")
	want := []string{`ok +index\.words +1 queue on 1 lane `, `ok +mail +1 queue on 1 lane `, `ok +parse +2 queues on [12] lanes? `, `ok +/topic/orders\.created +2 queues on 1 lane `}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != len(want) {
		t.Fatalf("want %d lines:\n%s", len(want), text)
	}
	for i, l := range lines {
		if !regexp.MustCompile(`^` + want[i] + ` publish [0-9.]+ ms, consume [0-9.]+ ms$`).MatchString(l) {
			t.Errorf("line %d is %q, want %s", i+1, l, want[i])
		}
	}
	if called.Load() != 1 {
		t.Errorf("handlers were called %d times for the diagnosis", called.Load()-1)
	}
	leavesNothing(t, m, before)
}

// leavesNothing fails unless everything is as it was before the diagnosis.
func leavesNothing(t *testing.T, m *harness.Mesh, before map[string]uint64) {
	t.Helper()
	for _, listing := range [][]string{{"execution", "ls"}, {"subscription", "ls"}, {"dlq", "ls"}, {"retry", "ls"}} {
		if got := m.Run(listing...); got.Code != 0 || strings.Contains(got.Stdout, "waybill-diagnosis") {
			t.Errorf("%v, with code %d:\n%s", listing, got.Code, got.Stdout)
		}
	}
	stats := m.Stats()
	if n := stats["registry"].Gauges["workers"]; n != 1 {
		t.Errorf("%v workers are known, 1 was there before", n)
	}
	for _, name := range []string{"published", "deduplicated", "refused", "delivered", "acknowledged", "failed", "rejected", "incomplete", "vanished", "retried", "dead_lettered"} {
		if n := stats["router"].Counters[name]; n != before[name] {
			t.Errorf("%s is %d after the diagnosis, and was %d", name, n, before[name])
		}
	}
	// That of a listener that has gone is kept for seconds, in case it comes back.
	harness.Await(t, "no queue is left", func() bool {
		return !strings.Contains(m.Run("queue", "ls").Stdout, "waybill-diagnosis")
	})
	harness.Await(t, "no route is left in the books", func() bool {
		return !strings.Contains(m.Run("reconcile", "--json").Stdout, "diagnosis")
	})
	if counters := m.Stats()["router"].Counters; counters["published"] != 1 {
		t.Errorf("published is %d when the queues are gone, and was 1", counters["published"])
	}
}

// JSON says the same; so does the command.
func TestDiagnosisForMachines(t *testing.T) {
	m := harness.Start(t)
	subscribed(t, m.Connect())
	byAccept := diagnosed(t, m, "", "application/json")
	byFormat := diagnosed(t, m, "?format=json", "")
	var command harness.Command
	harness.Await(t, "the command ends with 0", func() bool {
		command = m.Run("diagnose", "--json")
		return command.Code == 0
	})
	for how, text := range map[string]string{"Accept": byAccept, "format": byFormat, "command": command.Stdout} {
		r := parse(t, text)
		var names []string
		for _, l := range r.Lines {
			names = append(names, l.Route+l.Topic)
			if !l.OK || l.Error != nil || len(l.Lanes) == 0 || l.Publish <= 0 || l.Consume <= 0 {
				t.Errorf("%s: a line of a mesh that works is %+v", how, l)
			}
		}
		if got := strings.Join(names, " "); !r.OK || got != "index.words mail parse orders.created" {
			t.Errorf("%s: ok %v, lines of %s", how, r.OK, got)
		}
	}
}

// Several diagnoses at once do not find each other.
func TestDiagnosesAtOnce(t *testing.T) {
	m := harness.Start(t)
	called := subscribed(t, m.Connect())
	var asking sync.WaitGroup
	for range 6 {
		asking.Go(func() {
			if text := diagnosed(t, m, "", ""); strings.Count(text, "\n") != 4 {
				t.Errorf("want 4 lines:\n%s", text)
			}
		})
	}
	asking.Wait()
	if called.Load() != 0 {
		t.Errorf("handlers were called %d times", called.Load())
	}
}

// Without a router every line has failed, and says why; with it back all is well.
func TestDiagnosisWithoutRouter(t *testing.T) {
	m := harness.StartSeparate(t, map[string]int{"router": 1})
	subscribed(t, m.Connect())
	m.Instance("router-1").End()
	var (
		asking  sync.WaitGroup
		command harness.Command
	)
	asking.Go(func() { command = m.Run("diagnose") })
	status, text := diagnose(t, m.Mesh, "", "application/json")
	asking.Wait()
	r := parse(t, text)
	if status != http.StatusServiceUnavailable || r.OK || len(r.Lines) != 4 {
		t.Fatalf("%d, want 503 and 4 lines:\n%s", status, text)
	}
	codes := map[string]int{}
	for _, l := range r.Lines {
		if l.OK || l.Error == nil {
			t.Errorf("without a router a line is %+v", l)
			continue
		}
		codes[l.Error.Code]++
	}
	maps.DeleteFunc(codes, func(code string, _ int) bool { return code == "UNAVAILABLE" || code == "TIMEOUT" })
	if len(codes) > 0 {
		t.Errorf("unexpected codes: %v", codes)
	}
	if command.Code != 1 || strings.Count(command.Stdout, "FAILED  ") != 4 {
		t.Errorf("the command ends with %d:\n%s%s", command.Code, command.Stdout, command.Stderr)
	}

	m.Instance("router-1").Start()
	m.AwaitReady()
	diagnosed(t, m.Mesh, "", "")
}

// Without NATS the lines are those there were, all of them failed: also of a
// gateway that was never asked before.
func TestDiagnosisWithoutNATS(t *testing.T) {
	m := harness.StartSeparate(t, map[string]int{"gateway": 2})
	subscribed(t, m.Connect())
	m.Instance("gateway-2").End()
	m.Instance("gateway-2").Start()
	m.AwaitReady()
	before := parse(t, diagnosed(t, m.Mesh, "", "application/json"))
	m.KillNATS()
	for range 2 {
		harness.Await(t, "the gateway knows that NATS is gone", func() bool {
			status, text := diagnose(t, m.Mesh, "", "application/json")
			r := parse(t, text)
			if status != http.StatusServiceUnavailable || r.OK || len(r.Lines) != len(before.Lines) {
				t.Fatalf("%d, want 503 and %d lines:\n%s", status, len(before.Lines), text)
			}
			return !slices.ContainsFunc(r.Lines, func(l line) bool { return l.OK || l.Error == nil || l.Error.Code != "UNAVAILABLE" })
		})
		m.NextGateway()
	}
	m.RestartNATS()
	diagnosed(t, m.Mesh, "", "")
}
