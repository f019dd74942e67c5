package chaos_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// A mesh in this process is started and stopped many times under load, at any
// moment, also before its start has come to an end and by several at once: it
// never panics, leaves no goroutine, and keeps what it answered.
func TestStartAndStopAtAnyMoment(t *testing.T) {
	const times = 25
	o := up.Options{
		Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Drain: 20 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	m := mustStart(t, o)
	o.Listen = m.Listen()
	c := harness.Connect(t, m.NATS())
	var answered, handled atomic.Int64
	work(t, c, &handled)
	stop := publishOn(t, c, &answered)
	for range times {
		stopAll(t, m)
		interrupt(t, o)
		m = mustStart(t, o)
		target := handled.Load() + rand.Int64N(50)
		harness.Await(t, "more is handled", func() bool { return handled.Load() > target })
	}
	stop()
	harness.Await(t, "all is handled", func() bool { return handled.Load() >= answered.Load() })
	t.Logf("%d answered, %d handled", answered.Load(), handled.Load())
	c.Close(t.Context())
	stopAll(t, m)
}

func mustStart(t *testing.T, o up.Options) *up.Mesh {
	t.Helper()
	m, err := up.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// interrupt starts a mesh and changes its mind.
func interrupt(t *testing.T, o up.Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(200))*time.Millisecond)
	defer cancel()
	m, err := up.Start(ctx, o)
	if err == nil {
		stopAll(t, m)
		return
	}
	if ctx.Err() == nil {
		t.Errorf("a start that nobody interrupted: %v", err)
	}
	if strings.Contains(err.Error(), "still running") {
		t.Errorf("a start left something behind: %v", err)
	}
}

// stopAll stops a mesh, from two sides at once.
func stopAll(t *testing.T, m *up.Mesh) {
	t.Helper()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := m.Stop(context.Background()); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
	both.Wait()
}

func work(t *testing.T, c *client.Client, handled *atomic.Int64) {
	t.Helper()
	_, err := c.Work(t.Context(), "e", "r", func(context.Context, *client.Delivery) error {
		handled.Add(1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// publishOn publishes until it is told to stop.
func publishOn(t *testing.T, c *client.Client, answered *atomic.Int64) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	for range 4 {
		publishing.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.Publish(ctx, client.Queue("e", "r"), nil); err == nil {
					answered.Add(1)
					continue
				}
				pause(ctx, patience)
			}
		})
	}
	return func() { cancel(); publishing.Wait() }
}
