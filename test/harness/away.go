package harness

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Left are messages of one execution that a broker has when it goes away: a dead
// letter, one that nobody takes, and one that waits, where the broker lists those.
type Left struct {
	mesh                 *Mesh
	broker, execution    string
	dead, ready, waiting string // ids
}

// Leave puts them there.
func (m *Mesh) Leave(broker, execution string, waits bool) *Left {
	m.t.Helper()
	l := &Left{mesh: m, broker: broker, execution: execution}
	c := m.Connect()
	Work(m.t, c, execution, "worked", func(context.Context, *client.Delivery) error { return nil })
	l.ready = l.put(c, "ready")
	l.dead = l.put(c, "dead")
	w := Work(m.t, c, execution, "dead", func(context.Context, *client.Delivery) error { return client.Reject(errors.New("no luck")) })
	l.await("dead", func(q protocol.QueueInfo) bool { return q.Dead == 1 })
	workers := []*client.Worker{w}
	if waits {
		l.waiting = l.put(c, "waiting")
		workers = append(workers, Work(m.t, c, execution, "waiting", func(context.Context, *client.Delivery) error { return errors.New("no luck") }, client.Backoff(time.Hour)))
		l.await("waiting", func(q protocol.QueueInfo) bool { return q.Waiting == 1 })
	}
	for _, w := range workers {
		if err := w.Stop(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
	}
	return l
}

func (l *Left) put(c *client.Client, route string) string {
	l.mesh.t.Helper()
	return Publish(l.mesh.t, c, client.Queue(l.execution, route), "x").MessageID
}

func (l *Left) await(route string, is func(q protocol.QueueInfo) bool) {
	l.mesh.t.Helper()
	Await(l.mesh.t, l.execution+"/"+route+" to hold what is left", func() bool {
		q := l.mesh.Queue(l.execution, route)
		return q.Unknown == "" && is(q)
	})
}

// CheckCounted fails the test unless all numbers have what the broker holds.
func (l *Left) CheckCounted() {
	t, m := l.mesh.t, l.mesh
	t.Helper()
	want := map[string]float64{"up": 1, "ready": 1, "dead": 1, "waiting": min(1, float64(len(l.waiting))), "unknown_queues": 0}
	for name, n := range want {
		Await(t, "the broker's gauge "+name, func() bool {
			told, found := m.metric(BrokerMetrics + name + `{broker="` + l.broker + `"}`)
			return found && told == n
		})
	}
	for _, name := range []string{"ready", "dead", "unattended_queues", "stalled_seconds"} {
		Await(t, "the router's gauge "+name, func() bool {
			told, _ := m.metric("waybill_" + name + `{service="router"}`)
			return told > 0
		})
	}
	Await(t, "execution ls to have them", func() bool {
		var all []protocol.ExecutionCounts
		r := m.Run("execution", "ls", "--json")
		if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || r.Code != 0 {
			t.Fatalf("execution ls: %v: %+v", err, r)
		}
		i := slices.IndexFunc(all, func(e protocol.ExecutionCounts) bool { return e.Execution == l.execution })
		return i >= 0 && float64(all[i].Ready) == want["ready"] && float64(all[i].Dead) == want["dead"] && float64(all[i].Waiting) == want["waiting"]
	})
}

// CheckUnknown fails the test unless nobody is told that the broker, which is away,
// holds nothing.
func (l *Left) CheckUnknown() {
	t, m := l.mesh.t, l.mesh
	t.Helper()
	Await(t, "the broker to be away", func() bool { return strings.Contains(m.Queue(l.execution, "ready").Unknown, l.broker) })
	for _, args := range [][]string{
		{"queue", "ls", "--execution", l.execution}, {"execution", "ls"}, {"stats"}, {"dlq", "ls"}, {"dlq", "ls", l.execution + "/dead"}, {"retry", "ls", "--execution", l.execution},
	} {
		if r := m.Run(args...); r.Code != 0 || !strings.Contains(r.Stdout, l.broker) || !strings.Contains(r.Stdout, "unknown") && !strings.Contains(r.Stdout, "not looked at") {
			t.Errorf("%v ends with %d: %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	if r := m.Run("execution", "close", l.execution); r.Code != 0 || !strings.Contains(r.Stdout, "unknown: the broker "+l.broker) {
		t.Errorf("execution close ends with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := m.Run("execution", "reopen", l.execution); r.Code != 0 {
		t.Errorf("execution reopen ends with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := m.Run("reconcile"); r.Code != 4 || !strings.Contains(r.Stdout, "away: "+l.broker) {
		t.Errorf("reconcile ends with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if out := m.Run("diagnose").Stdout; !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "FAILED  worked ") && strings.Contains(line, "the broker "+l.broker+" at ")
	}) {
		t.Errorf("diagnose says %s", out)
	}
	Await(t, "its gauges to be gone", func() bool {
		up, found := m.metric(BrokerMetrics + `up{broker="` + l.broker + `"}`)
		_, known := m.metric(BrokerMetrics + `ready{broker="` + l.broker + `"}`)
		return found && up == 0 && !known
	})
	if body := m.page("/api/v1/queues?queue=" + l.execution + "/ready"); !strings.Contains(body, `"unknown":"the broker `+l.broker) {
		t.Errorf("HTTP says %s", body)
	}
	acts := [][]string{
		{"why", l.ready}, {"dlq", "show", l.dead}, {"dlq", "redrive", l.dead}, {"dlq", "redrive", l.execution + "/dead"}, {"dlq", "discard", l.dead},
		{"retry", "now", "--execution", l.execution}, {"retry", "cancel", l.execution + "/waiting"},
	}
	if l.waiting != "" {
		acts = append(acts, []string{"retry", "now", l.waiting}, []string{"retry", "cancel", l.waiting})
	}
	for _, args := range acts {
		r := m.Run(args...)
		said := r.Stdout + r.Stderr
		if !strings.Contains(said, string(protocol.CodeUnavailable)) || !strings.Contains(said, "the broker "+l.broker+" at ") || strings.Contains(said, "publish") {
			t.Errorf("%v ends with %d: %s", args, r.Code, said)
		}
	}
}

// CheckThere fails the test unless all of it is there, once the broker is back.
func (l *Left) CheckThere() {
	t, m := l.mesh.t, l.mesh
	t.Helper()
	l.await("ready", func(q protocol.QueueInfo) bool { return q.Ready == 1 })
	l.await("dead", func(q protocol.QueueInfo) bool { return q.Dead == 1 })
	if l.waiting != "" {
		l.await("waiting", func(q protocol.QueueInfo) bool { return q.Waiting == 1 })
	}
	Await(t, "the dead letter to be redriven", func() bool {
		n, err := m.Redrive(protocol.DeadActRequest{Queue: scope.ScopedName(l.execution, "dead")})
		return err == nil && n == 1
	})
}
