package artemis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// reissued: what the broker has handed out again, on a connection that lives, is not
// settled for who had it first; a copy of our own is not taken for that.
func (p *place) reissued(tap *wiretap) {
	deliveries, _ := p.work("reissued", "tasks", client.Concurrency(2), client.Backoff(50*time.Millisecond))
	p.publish(client.Queue("reissued", "tasks"), "x")
	first := harness.Receive(p, "the message", deliveries)
	before := p.counted(protocol.CountSuperseded)
	tap.reissue(p.T, "/queue/reissued/tasks")
	second := harness.Receive(p, "the message again", deliveries)
	if second.ID != first.ID || second.Attempt != 1 {
		p.Errorf("handed out again it is %s at attempt %d, was %s", second.ID, second.Attempt, first.ID)
	}
	first.End <- nil
	harness.Await(p, "the delivery and its answer to be superseded", func() bool { return p.counted(protocol.CountSuperseded) == before+2 })
	if q := p.server.Queues(p)["reissued/tasks"]; q.Delivering != 1 {
		p.Errorf("it was settled for who had it first: %+v", q)
	}
	second.End <- errFails
	third := harness.Receive(p, "the copy", deliveries)
	if third.Attempt != 2 {
		p.Errorf("the copy is at attempt %d", third.Attempt)
	}
	third.End <- nil
	p.awaitRest("reissued", "tasks", 0)
	q := p.mesh.Queue("reissued", "tasks")
	if q.Counters[protocol.CountSuperseded] != 1 || q.Counters[protocol.CountAcknowledged] != 1 || q.Counters[protocol.CountRetried] != 1 {
		p.Errorf("counted are %v", q.Counters)
	}
	harness.Await(p, "the queue to be empty", func() bool { return p.server.Depth(p, "reissued/tasks") == 0 })
}

// routerReplaced: a route that goes to another router while its handler runs is
// consumed there, over a connection of its own. The first router, which goes on with
// other routes, settles nothing of it, and the message is handled again at no cost.
// No connection is lost over it.
func routerReplaced(t *testing.T, server *live.Artemis) {
	const routes = 32
	tap := newTap(t, server)
	p := on(t, server, tap.url())
	deliveries := make(chan harness.Taken, 4*routes)
	for n := range routes {
		route := strconv.Itoa(n)
		p.handle("replaced", route, func(_ context.Context, d *client.Delivery) error {
			end := make(chan error, 1)
			deliveries <- harness.Taken{Delivery: d, End: end}
			return <-end
		})
		p.publish(client.Queue("replaced", route), route)
	}
	running := p.take(deliveries, routes)
	both := p.mesh.JoinRouter("router-2")
	again := map[string]bool{}
	first := p.take(deliveries, 1)[0]
	again[string(first.Data)] = true
	for _, d := range append(running, first) {
		d.End <- nil
	}
	harness.Await(t, "all to be handled", func() bool {
		for len(deliveries) > 0 {
			d := <-deliveries
			if d.Attempt != 1 || again[string(d.Data)] {
				t.Errorf("%s is at attempt %d, or a third time", d.Data, d.Attempt)
			}
			again[string(d.Data)] = true
			d.End <- nil
		}
		return both.Counted(protocol.CountAcknowledged) == routes
	})
	harness.Await(t, "the first answers to be superseded", func() bool { return both.Counted(protocol.CountSuperseded) == uint64(len(again)) })
	if ids := tap.stale(); len(ids) > 0 {
		t.Errorf("the broker should not have been sent: %v", ids)
	}
	if n := tap.torn(); n > 0 {
		t.Errorf("%d connections were lost", n)
	}
	p.noErrors()
}

// TestKilledRouter: what waits at the broker comes in its own time when the router is
// killed meanwhile, and at once if it was let go before that.
func TestKilledRouter(t *testing.T) {
	t.Parallel()
	server := shared(t)
	p := on(t, server, server.URL())
	const delay = 2 * time.Second
	delays := map[string]time.Duration{"waits": delay, "hurried": time.Hour}
	failed, ids := map[string]time.Time{}, map[string]string{}
	for route, backoff := range delays {
		deliveries, w := p.work("killed", route, client.Backoff(backoff))
		ids[route] = p.publish(client.Queue("killed", route), route).MessageID
		d := harness.Receive(t, "the first attempt", deliveries)
		failed[route] = time.Now()
		d.End <- errFails
		p.awaitWaiting(route, func(waiting int64) bool { return waiting == 1 || time.Since(failed[route]) > backoff })
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.letGo(ids["hurried"])
	p.awaitWaiting("hurried", func(waiting int64) bool { return waiting == 0 })
	p.mesh.Kill()
	p.mesh.Restart()
	p.client = p.mesh.Connect()
	for route := range delays {
		deliveries, _ := p.work("killed", route)
		d := harness.Receive(t, "the second attempt", deliveries)
		if waited := time.Since(failed[route]); d.ID != ids[route] || d.Attempt != 2 || route == "waits" && waited < delay {
			t.Errorf("%s comes as attempt %d after %v", d.Data, d.Attempt, waited)
		}
		if told := p.mesh.Run("why", d.ID); strings.Contains(told.Stdout, "let go before its time") != (route == "hurried") {
			t.Errorf("whether it was let go: %+v", told)
		}
		d.End <- nil
		p.awaitRest("killed", route, 0)
	}
}

// awaitWaiting waits for how many messages of a route wait.
func (p *place) awaitWaiting(route string, is func(waiting int64) bool) {
	p.Helper()
	harness.Await(p, "what waits in "+route, func() bool { return is(p.server.Queues(p)["killed/"+route].Scheduled) })
}

// moved: messages move to the broker and away from it while they are published and
// handled, and nothing is lost, handled twice or out of order. A broker that cannot be
// used changes nothing.
func moved(t *testing.T, server *live.Artemis) {
	m := harness.Start(t)
	f := harness.Begin(t, m)
	f.More(20)
	refused := m.Run("config", "apply", harness.OnArtemis(t, "stomp://waybill:s3cret@127.0.0.1:1")[1])
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "127.0.0.1:1") || strings.Contains(refused.Stderr, "s3cret") {
		t.Errorf("a broker that is not there: %+v", refused)
	}
	for _, adapter := range []string{fmt.Sprintf("{name: artemis, config: {url: %q}}", server.URL()), "{name: builtin}"} {
		m.Apply("adapter: " + adapter)
		f.More(40)
	}
	f.End(false)
	for _, name := range []string{"builtin", "artemis"} {
		if !f.Took[name] {
			t.Errorf("nothing was published to %s", name)
		}
	}
}
