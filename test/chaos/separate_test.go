package chaos_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/test/harness"
)

const lanes = 16

// two of each service.
var two = map[string]int{"registry": 2, "retry": 2, "dlq": 2, "router": 2, "gateway": 2}

// One instance after another is killed under load and started again: nothing is
// lost, doubled or misplaced, and what a router leaves goes on at another.
func TestKilledInstancesLoseNothing(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, map[string]int{"registry": 2, "retry": 2, "dlq": 2, "router": 3, "gateway": 2})
	soak, began := harness.Soak(t), time.Now()
	for round := 1; ; round++ {
		l := &load{t: t, mesh: m.Mesh, execution: "kill-" + strconv.Itoa(round), decide: life, lingers: someLinger}
		l.start()
		for _, name := range []string{"router-1", "retry-1", "router-3", "dlq-2", "registry-1", "gateway-2", "router-2"} {
			l.progress(200)
			i := m.Instance(name)
			i.Kill()
			if i.Service == "router" {
				gone := lanesGoOn(t, l.client)
				t.Logf("lanes went on %v after %s was killed", gone.Round(time.Millisecond), name)
			}
			l.progress(200)
			i.Start()
		}
		m.AwaitReady()
		l.progress(500)
		l.operated()
		if v := l.finish(); v.Repeated > 0 || v.Dead == 0 || v.Redriven == 0 {
			t.Errorf("round %d: deliveries came twice, or something was never tried: %+v", round, v)
		}
		l.client.Close(t.Context())
		if t.Failed() || time.Since(began) > soak {
			return
		}
	}
}

// lanesGoOn is how long it takes until every lane has answered a publish. Those
// to lanes without an owner are refused, not left without an answer, but for
// those that NATS still gives to the killed router itself.
func lanesGoOn(t *testing.T, c *client.Client) time.Duration {
	t.Helper()
	began := time.Now()
	var publishing sync.WaitGroup
	for lane := range lanes {
		publishing.Go(func() { laneGoesOn(t, c, lane, began) })
	}
	publishing.Wait()
	return time.Since(began)
}

func laneGoesOn(t *testing.T, c *client.Client, lane int, began time.Time) {
	t.Helper()
	const brief, patient, unanswered = 500 * time.Millisecond, harness.Guard, 2
	to := client.Queue("probe", routeIn(lane))
	for lost := 0; t.Context().Err() == nil && time.Since(began) < harness.Guard; {
		within := brief
		if lost >= unanswered {
			within = patient
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err := c.Publish(ctx, to, nil)
		cancel()
		if err == nil {
			return
		}
		if protocol.CodeOf(err) == protocol.CodeTimeout {
			lost++
		}
		if lost > unanswered {
			t.Errorf("lane %d: publishes are not answered: %v", lane, err)
			return
		}
		pause(t.Context(), patience)
	}
	t.Errorf("lane %d does not go on", lane)
}

// routeIn is a route of the execution probe that lies in the lane.
func routeIn(lane int) string {
	for i := 0; ; i++ {
		route := "r" + strconv.Itoa(i)
		if ledger.Of(scope.ScopedName("probe", route), lanes) == lane {
			return route
		}
	}
}

// Without retry, and without dlq, what fails waits, fresh messages flow, and
// when the service is back everything is where it belongs.
func TestWhatFailsWaitsWhileAServiceIsAway(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, nil)
	for _, service := range []string{"retry", "dlq"} {
		l := &load{
			t: t, mesh: m.Mesh, execution: "without-" + service,
			decide: func(job, _, attempt int) protocol.Outcome {
				if job%10 == 1 {
					return protocol.Rejected
				}
				return failedIf(job%5 == 0 && attempt == 1)
			},
		}
		l.start()
		l.progress(300)
		i := m.Instance(service + "-1")
		i.Kill()
		l.progress(1500)
		i.Start()
		m.AwaitReady()
		l.progress(300)
		if v := l.finish(); v.Dead+v.Discarded == 0 {
			t.Errorf("nothing was dead: %+v", v)
		}
		l.client.Close(t.Context())
	}
}

// A handler that runs while its router is killed and stopped, by turns, again
// and again, runs once, and its answer counts. A stop waits for it no longer than
// the router's drain.
func TestALongHandlerOutlivesItsRouters(t *testing.T) {
	t.Parallel()
	const restarts = 25
	m := harness.StartSeparate(t, nil)
	c := m.Connect()
	began, finish := make(chan struct{}, restarts), make(chan struct{})
	var runs atomic.Int64
	if _, err := c.Work(t.Context(), "e", "long", func(ctx context.Context, _ *client.Delivery) error {
		runs.Add(1)
		began <- struct{}{}
		select {
		case <-finish:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), client.Queue("e", "long"), nil); err != nil {
		t.Fatal(err)
	}
	harness.Receive(t, "the handler begins", began)
	router := m.Instance("router-1")
	router.Kill()
	router = m.Add("router", "router-1", "--drain", "300ms")
	m.AwaitReady() // with its worker claimed, which a stop waits for
	for n := range restarts {
		if n%3 == 0 {
			router.End()
		} else {
			router.Kill()
		}
		router.Start()
		if n%5 == 0 {
			m.AwaitReady()
		}
		publishUntilStored(t, c, client.Queue("e", "other"), nil)
	}
	m.AwaitReady()
	close(finish)
	harness.Await(t, "the long message is settled", func() bool {
		q := m.Queue("e", "long")
		return q.Counters[protocol.CountAcknowledged] == 1 && q.InFlight+q.Ready == 0
	})
	if q := m.Queue("e", "long"); runs.Load() != 1 || q.Dead+q.Waiting != 0 || q.Counters[protocol.CountVanished] != 0 {
		t.Errorf("the handler ran %d times: %+v", runs.Load(), q)
	}
}

// publishUntilStored publishes again while the mesh is away, with more and more
// patience: it may be there, and slow.
func publishUntilStored(t *testing.T, c *client.Client, to client.Destination, data []byte, opts ...client.PublishOption) {
	t.Helper()
	within := 500 * time.Millisecond
	harness.Await(t, "a publish is answered", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		within += within / 2
		_, err := c.Publish(ctx, to, data, opts...)
		return err == nil
	})
}

// Every instance is stopped and started again, one after the other, under load:
// nothing is lost, comes twice or is dead, and all that the copies tell adds up.
func TestRollingRestartLosesNothing(t *testing.T) {
	m := harness.StartSeparate(t, two)
	l := &load{
		t: t, mesh: m.Mesh, execution: "rolling", lingers: someLinger,
		decide: func(job, _, attempt int) protocol.Outcome { return failedIf(job%50 == 1 && attempt == 1) },
	}
	l.start()
	for _, i := range m.Instances() {
		l.progress(100)
		began := time.Now()
		i.End()
		if i.Service == "router" {
			left := time.Since(began)
			t.Logf("%s left in %v, its lanes went on %v later", i.Name, left.Round(time.Millisecond), lanesGoOn(t, l.client).Round(time.Millisecond))
		}
		i.Start()
		if i.Name == "gateway-1" {
			m.HTTP = ""
		}
		m.AwaitReady()
	}
	l.progress(300)
	v := l.finish()
	if v.Dead+v.Discarded+v.Repeated != 0 {
		t.Errorf("something was dead, discarded or came twice: %+v", v)
	}
	m.FindGateways()
	addsUp(t, m, v)
}

// addsUp compares what the copies tell, by each way there is.
func addsUp(t *testing.T, m *harness.Separate, v harness.Verdict) {
	t.Helper()
	published := v.Answered + v.Unanswered
	for _, q := range m.Queues("probe") {
		published += int(q.Counters[protocol.CountPublished])
	}
	for range 2 { // each gateway is asked
		if n := int(m.Metric("waybill_published_total")); n != published {
			t.Errorf("the metrics of %s say %d published, want %d", m.HTTP, n, published)
		}
		m.NextGateway()
	}
	listed := m.Listed()
	seen := make(map[string]bool)
	acknowledged := 0
	for _, q := range listed {
		if seen[q.Queue] {
			t.Errorf("%s is listed twice", q.Queue)
		}
		seen[q.Queue] = true
		acknowledged += int(q.Counters[protocol.CountAcknowledged])
	}
	if acknowledged != v.Acknowledged || len(listed) != queues+lanes {
		t.Errorf("waybill queue ls lists %d queues with %d acknowledged, want %d with %d", len(listed), acknowledged, queues+lanes, v.Acknowledged)
	}
	if lists := m.WorkerLists(20); len(lists) != 1 {
		t.Errorf("the registries do not agree on the workers: %v", lists)
	}
}

// NATS is killed under all of them, and comes back: everybody does too, nothing
// is lost, and no worker counts as gone.
func TestServicesOutliveTheirNATS(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, two)
	l := &load{t: t, mesh: m.Mesh, execution: "nats", decide: life, lingers: someLinger}
	l.start()
	for range 2 {
		l.progress(300)
		m.KillNATS()
		m.RestartNATS()
	}
	m.AwaitReady()
	l.progress(300)
	l.finish()
	for _, i := range m.Instances() {
		if i.Ended() {
			t.Errorf("%s has ended", i.Name)
		}
		if i.Service == "registry" && silent.MatchString(i.Output()) {
			t.Errorf("%s gave a worker up:\n%s", i.Name, i.Output())
		}
	}
}

// A registry, and the only router, that were stopped for longer than a worker
// may be silent hold that against nobody: the handler runs on, once.
func TestAStoppedServiceGivesNobodyUp(t *testing.T) {
	t.Parallel()
	m := harness.StartSeparate(t, nil)
	c := m.Connect()
	began, finish := make(chan struct{}, 10), make(chan struct{})
	if _, err := c.Work(t.Context(), "e", "r", func(ctx context.Context, _ *client.Delivery) error {
		began <- struct{}{}
		select {
		case <-finish:
			return nil
		case <-ctx.Done():
			return errors.New("cancelled")
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), client.Queue("e", "r"), nil); err != nil {
		t.Fatal(err)
	}
	harness.Receive(t, "the handler begins", began)
	registry, router := m.Instance("registry-1"), m.Instance("router-1")
	registry.Pause()
	router.Pause()
	harness.Wait(t, protocol.WorkerSilence+2*time.Second)
	registry.Resume()
	router.Resume()
	m.AwaitReady()
	publishUntilStored(t, c, client.Queue("e", "other"), nil)
	close(finish)
	harness.Await(t, "the message is settled", func() bool { return m.Queue("e", "r").Counters[protocol.CountAcknowledged] == 1 })
	if q := m.Queue("e", "r"); len(began) != 0 || q.Counters[protocol.CountVanished] != 0 || silent.MatchString(registry.Output()) {
		t.Errorf("the worker was given up: %+v\n%s", q, registry.Output())
	}
}
