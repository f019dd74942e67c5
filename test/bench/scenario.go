package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// scenario is one question that is asked of every system.
type scenario struct {
	name    string
	title   string
	rows    []row    // what it finds out, in the order of run's result
	systems []string // that it runs on; default the four
	once    bool     // in one round only: it takes long
	traced  string   // share of the messages that spans are made of; empty: of none
	run     func(ctx context.Context, m *measurement) ([]float64, error)
}

// row is one figure of a scenario.
type row struct {
	title string
	unit  string
}

// Rows that scenarios share.
var (
	perSecond  = []row{{"", "/s"}}
	topicRates = []row{{"published", "/s"}, {"handled", "/s"}}
	latencies  = []row{{"p50", "ms"}, {"p99", "ms"}}
	lateness   = []row{{"p50", "ms"}, {"p99", "ms"}, {"most", "ms"}}
)

// settings say how long the scenarios go on.
type settings struct {
	Rounds     int           `json:"rounds"`
	Warmup     time.Duration `json:"warmup_ns"`
	Publish    time.Duration `json:"publish_ns"`  // of the scenarios as fast as possible
	Pace       time.Duration `json:"pace_ns"`     // of the latency scenario
	Queues     int           `json:"queues"`      // of the scenario with a consumer for each
	ManyQueues int           `json:"many_queues"` // of the scenario with many
	Redriven   int           `json:"redriven"`    // dead letters of the redrive scenario
	Waiting    int           `json:"waiting"`     // messages that wait while others become due
	Due        time.Duration `json:"due_ns"`      // how long 1,000 become due a second
	GiveUp     time.Duration `json:"give_up_ns"`  // after which one measurement fails
}

var (
	full = settings{
		Rounds: 3, Warmup: 500 * time.Millisecond, Publish: 2 * time.Second, Pace: 4 * time.Second,
		Queues: 1_000, ManyQueues: 10_000, Redriven: 100_000, Waiting: 80_000, Due: 20 * time.Second, GiveUp: 3 * time.Minute,
	}
	quick = settings{
		Rounds: 1, Warmup: 200 * time.Millisecond, Publish: 500 * time.Millisecond, Pace: time.Second,
		Queues: 200, ManyQueues: 2_000, Redriven: 10_000, Waiting: 5_000, Due: 2 * time.Second, GiveUp: time.Minute,
	}
)

const (
	latencyRate = 200  // messages a second
	dueRate     = 1000 // messages a second
	soon        = 5 * time.Millisecond
)

// scenarios are in the order of the table. What a later version of the mesh can
// do is measured by adding to it.
func scenarios(s settings) []scenario {
	many := fmt.Sprintf("jobs of 128 B, %s queues", thousands(s.ManyQueues))
	return []scenario{
		{name: "jobs", title: "jobs of 128 B, one queue", rows: perSecond, run: jobs(1, 128, 1)},
		{name: "jobs-1k", title: "jobs of 1 KiB, one queue", rows: perSecond, run: jobs(1, 1024, 1)},
		{name: "queues-10", title: "jobs of 128 B, 10 queues", rows: perSecond, run: jobs(10, 128, 1)},
		{
			name: "queues-each", title: fmt.Sprintf("jobs of 128 B, %s queues", thousands(s.Queues)), rows: perSecond,
			systems: []string{raw, meshAlways, rawEach}, once: true, run: jobs(s.Queues, 128, 1),
		},
		{name: "queues-many", title: many, rows: perSecond, run: jobs(s.ManyQueues, 128, 1)},
		{name: "topic-1", title: "a topic of 128 B, one observer", rows: topicRates, once: true, run: topic(1, "")},
		{name: "topic-10", title: "a topic of 128 B, 10 observers", rows: topicRates, once: true, run: topic(10, "")},
		{name: "topic-filtered", title: "a topic of 128 B, one observer with a filter", rows: topicRates, systems: ours, once: true, run: topic(1, benchFilter)},
		{name: "fail-once", title: "jobs of 128 B that fail once", rows: perSecond, run: jobs(1, 128, 2)},
		{name: "traced-off", title: "jobs of 128 B, no traces", rows: perSecond, systems: []string{mesh2m}, run: jobs(1, 128, 1)},
		{name: "traced-10", title: "jobs of 128 B, one in 10 traced", rows: perSecond, systems: []string{mesh2m}, traced: "0.1", run: jobs(1, 128, 1)},
		{name: "traced-100", title: "jobs of 128 B, all traced", rows: perSecond, systems: []string{mesh2m}, traced: "1", run: jobs(1, 128, 1)},
		{
			name: "latency", title: "publish to handled at 200/s", rows: latencies,
			systems: append(slices.Clone(four), inProcess), run: latency,
		},
		{
			name: "redrive", title: fmt.Sprintf("redrive of %s", thousands(s.Redriven)), rows: perSecond,
			systems: []string{raw, mesh2m, meshAlways}, run: redrive,
		},
		{
			name: "lateness", title: fmt.Sprintf("late, 1,000/s due of %s waiting", thousands(s.Waiting+int(s.Due.Seconds())*dueRate)),
			rows: lateness, systems: []string{raw, meshAlways}, once: true, run: late,
		},
	}
}

// has says whether the scenario runs on a system.
func (s *scenario) has(sys system) bool {
	if slices.Contains(besideBrokers, sys.name) {
		return slices.Contains(onBrokers, s.name)
	}
	if len(s.systems) == 0 {
		return slices.Contains(four, sys.name)
	}
	return slices.Contains(s.systems, sys.name)
}

// four are what every scenario runs on that does not say otherwise.
var four = []string{raw, mesh2m, rawAlways, meshAlways}

// besideBrokers are the systems of brokers.
var besideBrokers = []string{rawRabbit, meshRabbit, rawArtemis, meshArtemis, rawPulsar, meshPulsar}

// onBrokers are the scenarios that are measured beside a raw broker.
var onBrokers = []string{"jobs", "jobs-1k", "queues-10", "latency"}

// ours are the systems that have filters.
var ours = []string{mesh2m, meshAlways}

// jobs measures messages a second from the first publish to the last
// settlement, each being handled calls times: all but the last time it fails.
func jobs(queues, size, calls int) func(ctx context.Context, m *measurement) ([]float64, error) {
	return func(ctx context.Context, m *measurement) ([]float64, error) {
		rate, err := throughput(ctx, m, newFlow(m.broker, queues, size), calls, calls)
		return []float64{rate}, err
	}
}

// throughput is how many messages a second of a flow are published and settled,
// each being handled so many times; the first tries of them fail but one.
func throughput(ctx context.Context, m *measurement, f *flow, calls, tries int) (float64, error) {
	err := f.work(ctx, backoffOf(tries), func(c call) verdict {
		if c.nth < tries {
			return failed
		}
		return done
	})
	if err != nil {
		return 0, err
	}
	stage := func(d time.Duration) error {
		if err := f.publishFor(ctx, d); err != nil {
			return err
		}
		return f.finish(ctx, calls)
	}
	if err := stage(m.settings.Warmup); err != nil {
		return 0, err
	}
	warm := f.sent
	took, err := m.timed(func() (int, error) {
		err := stage(m.settings.Publish)
		return f.sent - warm, err
	})
	return float64(f.sent-warm) / took.Seconds(), err
}

// backoffOf is nil where nothing fails: raw JetStream can then bound what is in
// hand.
func backoffOf(calls int) func(int) time.Duration {
	if calls == 1 {
		return nil
	}
	return func(int) time.Duration { return soon }
}

// latency measures the time from publish to handler at a low rate.
func latency(ctx context.Context, m *measurement) ([]float64, error) {
	f := newFlow(m.broker, 1, 128)
	var times samples
	err := f.work(ctx, nil, func(c call) verdict {
		times.add(c.age)
		return done
	})
	if err != nil {
		return nil, err
	}
	stage := func(d time.Duration) error {
		if err := f.publishPaced(ctx, 0, latencyRate, d); err != nil {
			return err
		}
		return f.finish(ctx, 1)
	}
	if err := stage(m.settings.Warmup); err != nil {
		return nil, err
	}
	times.reset()
	warm := f.sent
	_, err = m.timed(func() (int, error) {
		err := stage(m.settings.Pace)
		return f.sent - warm, err
	})
	return []float64{times.at(0.50), times.at(0.99)}, err
}

// redrive measures dead letters a second from the request until the last is
// handled and settled.
func redrive(ctx context.Context, m *measurement) ([]float64, error) {
	f := newFlow(m.broker, 1, 128)
	err := f.work(ctx, nil, func(c call) verdict {
		if c.nth == 1 {
			return dead
		}
		return done
	})
	if err != nil {
		return nil, err
	}
	if err := f.publishMany(ctx, m.settings.Redriven); err != nil {
		return nil, err
	}
	if err := f.awaitHandled(ctx, 1); err != nil {
		return nil, err
	}
	if err := f.awaitLeft(ctx, 0, f.sent); err != nil {
		return nil, err
	}
	took, err := m.timed(func() (int, error) {
		if err := f.broker.redrive(ctx); err != nil {
			return f.sent, err
		}
		return f.sent, f.finish(ctx, 2)
	})
	return []float64{float64(f.sent) / took.Seconds()}, err
}

// late measures how long after its due time a failed message is handled again,
// while many others wait that are not due for an hour. A message's due time is
// that of its failure, as the handler sees it, plus the backoff.
func late(ctx context.Context, m *measurement) ([]float64, error) {
	const crowd, measured = 0, 1 // queues
	f := newFlow(m.broker, 2, 128)
	backoff := func(queue int) time.Duration {
		if queue == crowd {
			return time.Hour
		}
		return m.settings.Due
	}
	var times samples
	due := make([]atomic.Int64, mostMessages) // age of each message when it is due
	err := f.work(ctx, backoff, func(c call) verdict {
		if c.nth == 1 {
			due[c.message].Store(int64(c.age + m.settings.Due))
			return failed
		}
		times.add(c.age - time.Duration(due[c.message].Load()))
		return done
	})
	if err != nil {
		return nil, err
	}
	for range m.settings.Waiting {
		if err := f.publish(ctx, crowd); err != nil {
			return nil, err
		}
	}
	if err := f.awaitHandled(ctx, 1); err != nil {
		return nil, err
	}
	_, err = m.timed(func() (int, error) { return f.sent - m.settings.Waiting, f.fallDue(ctx, m, measured) })
	if first := times.at(0); err == nil && first < 0 {
		err = fmt.Errorf("a message was handled %.3f ms before it was due", -first)
	}
	return []float64{times.at(0.50), times.at(0.99), times.at(1)}, err
}

// fallDue sends the messages of the late scenario that are measured, and waits
// until all were handled again.
func (f *flow) fallDue(ctx context.Context, m *measurement, queue int) error {
	crowd := f.sent
	if err := f.publishPaced(ctx, queue, dueRate, m.settings.Due); err != nil {
		return err
	}
	want := int64(crowd + 2*(f.sent-crowd))
	if err := poll(ctx, look, func() (bool, error) { return f.handled.Load() >= want, nil }); err != nil {
		return err
	}
	if err := f.awaitLeft(ctx, crowd, 0); err != nil {
		return err
	}
	return f.check(crowd, 2)
}

// samples are durations of messages.
type samples struct {
	mu  sync.Mutex
	all []time.Duration
}

func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

func (s *samples) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = s.all[:0]
}

// at is the quantile in milliseconds, 0 without samples.
func (s *samples) at(q float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return 0
	}
	slices.Sort(s.all)
	i := min(int(q*float64(len(s.all))), len(s.all)-1)
	return float64(s.all[i]) / float64(time.Millisecond)
}
