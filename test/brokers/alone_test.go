package brokers_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestAlone: pipelines run on each broker that keeps messages when it is the only one
// there is.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			m := harness.Start(t, "--config", harness.Configuration(t, "adapter: "+k.start(t)))
			p := &pipeline{T: t, kind: k, mesh: m, client: m.Connect()}
			p.apart()
			p.outcomes()
			p.broadcast()
			p.diagnosis()
		})
	}
}

// pipeline is a mesh that runs executions of one.
type pipeline struct {
	*testing.T
	kind
	mesh   *harness.Mesh
	client *client.Client
}

// apart: two executions of one pipeline have each its own messages.
func (p *pipeline) apart() {
	const each = 20
	executions := []string{"019ce6d0-a", "019ce6d0-b"} // whose beginnings are the same
	var handled [2]atomic.Int64
	for n, execution := range executions {
		harness.Work(p, p.client, execution, "scraping.tasks", func(_ context.Context, d *client.Delivery) error {
			if string(d.Data) != execution || d.Execution != execution {
				p.Errorf("%s has one of %s", execution, d.Data)
			}
			handled[n].Add(1)
			return nil
		})
	}
	for range each {
		for _, execution := range executions {
			if r := publish(p, p.client, client.Queue(execution, "scraping.tasks"), execution); r.Broker != p.name {
				p.Fatalf("it was taken by %s", r.Broker)
			}
		}
	}
	for n, execution := range executions {
		p.rest(execution, "scraping.tasks", 0)
		if handled[n].Load() != each {
			p.Errorf("%s has handled %d", execution, handled[n].Load())
		}
	}
}

// outcomes: what a handler returns decides. A message that fails comes again as often
// as it may, one that is rejected does not, and both are to be seen and redriven.
func (p *pipeline) outcomes() {
	var runs [3]atomic.Int64
	harness.Work(p, p.client, "outcomes", "tasks", func(_ context.Context, d *client.Delivery) error {
		kind := strings.Index("afr", string(d.Data))
		runs[kind].Add(1)
		switch {
		case d.Generation > 0 || kind == 0:
			return nil
		case kind == 1:
			return errFails
		}
		return client.Reject(errFails)
	}, append(p.waits(backoff/4), client.MaxRetries(3))...)
	for _, data := range []string{"a", "f", "r"} {
		publish(p, p.client, client.Queue("outcomes", "tasks"), data)
	}
	p.rest("outcomes", "tasks", 2)
	for kind, want := range []int64{1, 3, 1} {
		if n := runs[kind].Load(); n != want {
			p.Errorf("kind %d was handled %d times, want %d", kind, n, want)
		}
	}
	reasons := map[protocol.Reason]uint32{}
	for _, l := range p.mesh.Dead("/queue/outcomes/tasks") {
		reasons[l.Reason] = l.Attempts
	}
	if len(reasons) != 2 || reasons[protocol.ReasonFailed] != 3 || reasons[protocol.ReasonRejected] != 1 {
		p.Errorf("the dead letters are there because of %v", reasons)
	}
	if n, err := p.mesh.Redrive(protocol.DeadActRequest{Queue: "/queue/outcomes/tasks"}); n != 2 || err != nil {
		p.Errorf("%d are redriven: %v", n, err)
	}
	p.rest("outcomes", "tasks", 0)
}

// broadcast: each subscriber of a topic has a copy. One whose handler fails has a dead
// letter after that attempt, and the other nothing of it.
func (p *pipeline) broadcast() {
	var runs [2]atomic.Int64
	for n := range runs {
		if _, err := p.client.Listen(p.Context(), "config.reloaded", func(context.Context, *client.Delivery) error {
			runs[n].Add(1)
			if n == 0 {
				return errFails
			}
			return nil
		}); err != nil {
			p.Fatal(err)
		}
	}
	r := publish(p, p.client, client.Topic("config.reloaded"), "now")
	if letter := deadLetter(p, p.mesh, "", r.MessageID); letter.Topic != "config.reloaded" || letter.Attempts != 1 {
		p.Errorf("the dead letter is %+v", letter)
	}
	harness.Await(p, "both to have it", func() bool { return runs[0].Load() == 1 && runs[1].Load() == 1 })
}

// diagnosis: a message gets through to every route.
func (p *pipeline) diagnosis() {
	harness.Await(p, "a diagnosis that finds nothing", func() bool {
		request, err := http.NewRequestWithContext(p.Context(), http.MethodPost, p.mesh.HTTP+"/api/v1/system/mq-diagnostic", http.NoBody)
		if err != nil {
			p.Fatal(err)
		}
		answer, err := web.Do(request)
		if err != nil {
			p.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			p.Logf("%d %s: %v", answer.StatusCode, text, err)
			return false
		}
		return strings.Contains(string(text), "scraping.tasks")
	})
}

// web keeps no connection that would count as left behind.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// rest waits until all that was published to a route is handled, or dead.
func (p *pipeline) rest(execution, route string, dead int64) {
	p.Helper()
	harness.Await(p, route+" of "+execution+" to come to rest", func() bool {
		q := p.mesh.Queue(execution, route)
		ended := q.Counters[protocol.CountAcknowledged] + uint64(q.Dead)
		return q.Ready+q.InFlight+q.Waiting+q.Moving == 0 && q.Dead == dead && ended == q.Counters[protocol.CountPublished]
	})
}
