package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/gateway/diagnose"
)

type benchCmd struct {
	Time   time.Duration `default:"6s" help:"How long, in all; a quarter of it one message at a time." placeholder:"TIME"`
	Size   int           `default:"128" help:"Bytes of a message." placeholder:"BYTES"`
	Routes int           `default:"16" help:"Routes that the messages are spread over." placeholder:"N"`
}

// measured is what bench found out. Latencies are of one message at a time:
// until it was stored, and from its publish until a handler had it.
type measured struct {
	SizeBytes  int     `json:"size_bytes"`
	Routes     int     `json:"routes"`
	Durability string  `json:"durability"`
	Alone      int     `json:"messages_alone"`
	StoredMs   latency `json:"stored_ms"`
	HandledMs  latency `json:"handled_ms"`
	Messages   int64   `json:"messages"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"per_second"` // published, stored, handled and acknowledged
}

type latency struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

const (
	maxBenchTime   = time.Minute
	benchBatch     = 512 // messages published together
	benchPublisher = 8   // batches at once
	benchHandlers  = 256 // of each route
)

func (c *benchCmd) Run(a *app) error {
	if c.Time < time.Second || c.Time > maxBenchTime || c.Size < 16 || c.Size > protocol.DefaultMaxPayload || c.Routes < 1 || c.Routes > 256 {
		return protocol.Errorf(protocol.CodeInvalidArgs, "--time is 1s to %v, --size 16 to %d, --routes 1 to 256", maxBenchTime, protocol.DefaultMaxPayload)
	}
	nc, err := a.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	execution := diagnose.NewExecution()
	a.hintf("publishing and handling messages of its own for %v", c.Time)
	m, err := c.measure(a, execution)
	tidying, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), askTimeout)
	defer cancel()
	if err := errors.Join(err, diagnose.Remove(tidying, nc, execution)); err != nil {
		return err
	}
	return a.show(m, func() { m.report(a) })
}

func (m *measured) report(a *app) {
	g := newGrid("", "MEDIAN", "99 %", "MOST")
	for _, row := range []struct {
		name string
		l    latency
	}{{"one at a time: stored after", m.StoredMs}, {"one at a time: handled after", m.HandledMs}} {
		g.row(row.name, msText(row.l.Median), msText(row.l.P99), msText(row.l.Max))
	}
	g.write(a.stdout)
	a.sayf("%.0f messages/s published, stored (%s) and handled: %d of %d bytes in %.1f s over %s",
		m.PerSecond, m.Durability, m.Messages, m.SizeBytes, m.Seconds, plural(int64(m.Routes), "route", "routes"))
}

func msText(ms float64) string { return fmt.Sprintf("%.2f ms", ms) }

// bench is a running measurement.
type bench struct {
	c         *client.Client
	execution string
	routes    []client.Destination
	body      []byte
	handled   atomic.Int64
	arrived   chan time.Time // of messages that go alone
	alone     atomic.Bool
}

func (c *benchCmd) measure(a *app, execution string) (m *measured, err error) {
	cl, err := a.client(client.Name("waybill-bench"), client.DrainWindow(time.Second))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cl.Close(context.WithoutCancel(a.ctx))) }()
	b := &bench{c: cl, execution: execution, body: make([]byte, c.Size), arrived: make(chan time.Time, 1)}
	for i := range c.Routes {
		if err := b.work(a.ctx, "r"+strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	m = &measured{SizeBytes: c.Size, Routes: c.Routes}
	if err := b.latencies(a.ctx, c.Time/4, m); err != nil {
		return nil, err
	}
	return m, b.throughput(a.ctx, c.Time-c.Time/4, m)
}

func (b *bench) work(ctx context.Context, route string) error {
	b.routes = append(b.routes, client.Queue(b.execution, route))
	_, err := b.c.Work(ctx, b.execution, route, func(context.Context, *client.Delivery) error {
		if b.alone.Load() {
			select {
			case b.arrived <- time.Now():
			default: // nobody waits for it any more
			}
		}
		b.handled.Add(1)
		return nil
	}, client.Concurrency(benchHandlers))
	return err
}

// latencies sends one message at a time.
func (b *bench) latencies(ctx context.Context, within time.Duration, m *measured) error {
	b.alone.Store(true)
	defer b.alone.Store(false)
	var stored, handled []float64
	for end := time.Now().Add(within); time.Now().Before(end); {
		began := time.Now()
		receipt, err := b.c.Publish(ctx, b.routes[len(stored)%len(b.routes)], b.body)
		if err != nil {
			return err
		}
		stored, m.Durability = append(stored, sinceMs(began, time.Now())), receipt.Durability
		select {
		case at := <-b.arrived:
			handled = append(handled, sinceMs(began, at))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askTimeout):
			return protocol.Errorf(protocol.CodeTimeout, "a message was stored and in %v not handled", askTimeout)
		}
	}
	m.Alone, m.StoredMs, m.HandledMs = len(stored), latencyOf(stored), latencyOf(handled)
	return nil
}

func sinceMs(began, at time.Time) float64 { return float64(at.Sub(began).Microseconds()) / 1000 }

func latencyOf(ms []float64) latency {
	slices.Sort(ms)
	return latency{Median: ms[len(ms)/2], P99: ms[len(ms)*99/100], Max: ms[len(ms)-1]}
}

// throughput publishes as fast as it is stored, and counts what is handled.
func (b *bench) throughput(ctx context.Context, within time.Duration, m *measured) error {
	began, before := time.Now(), b.handled.Load()
	end := began.Add(within)
	var publishing sync.WaitGroup
	errs := make([]error, benchPublisher)
	published := make([]int64, benchPublisher)
	for i := range benchPublisher {
		publishing.Go(func() {
			for n := i; time.Now().Before(end) && errs[i] == nil; n += benchPublisher {
				batch := make([]client.Message, benchBatch)
				for k := range batch {
					batch[k] = client.Message{To: b.routes[(n+k)%len(b.routes)], Data: b.body}
				}
				_, errs[i] = b.c.PublishMany(ctx, batch)
				published[i] += benchBatch
			}
		})
	}
	publishing.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, n := range published {
		m.Messages += n
	}
	if err := b.await(ctx, before+m.Messages); err != nil {
		return err
	}
	m.Seconds = time.Since(began).Seconds()
	m.PerSecond = float64(m.Messages) / m.Seconds
	return nil
}

// await returns when so many messages were handled.
func (b *bench) await(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for b.handled.Load() < n {
		if !mesh.Pause(ctx, time.Millisecond) {
			return protocol.Errorf(protocol.CodeTimeout, "%d messages were stored and in %v not handled", n-b.handled.Load(), askTimeout)
		}
	}
	return nil
}
