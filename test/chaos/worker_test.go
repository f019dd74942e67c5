package chaos_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// lives is life, in a worker process.
var lives = harness.RegisterHandler("life", func(ctx context.Context, d *client.Delivery) error {
	job, err := jobOf(d)
	if err != nil {
		panic(err)
	}
	pause(ctx, someLinger(job))
	return asError(life(job, d.Generation, d.Attempt))
})

// kill -9 of workers, and of the mesh between, while messages are in their
// hands: what a worker had finished is not run again unless its answer was lost
// with it, what it had not comes again with the same attempt, and at rest every
// message has had its due.
func TestKilledWorkersCostNothing(t *testing.T) {
	t.Parallel()
	kills := 8
	if harness.Soak(t) > 0 {
		kills = 100
	}
	l := &load{t: t, mesh: harness.Start(t), execution: "workers", decide: life, elsewhere: true}
	l.start()
	crew := make([]*harness.Worker, queues)
	for i := range crew {
		crew[i] = l.spawn(route(i))
	}
	for i := range kills {
		l.progress(1 + rand.Int64N(300))
		victim := rand.IntN(queues)
		crew[victim].Kill()
		if i%4 == 3 {
			l.mesh.Kill()
			l.mesh.Restart()
		}
		crew[victim] = l.spawn(route(victim))
	}
	l.progress(500)
	l.operated()
	if v := l.finish(); v.Dead == 0 || v.Redriven == 0 {
		t.Errorf("something was never tried: %+v", v)
	}
}

// spawn starts a worker process and notes what it tells.
func (l *load) spawn(route string) *harness.Worker {
	l.t.Helper()
	w := harness.StartWorker(l.t, harness.WorkerSpec{
		URL: l.mesh.URL, Execution: l.execution, Route: route, Handler: lives,
		Concurrency: workers, MaxRetries: maxRetries, Backoff: backoff,
	})
	var reading sync.WaitGroup
	reading.Go(func() {
		for e := range w.Events {
			l.audit.Told(e)
			if e.Outcome != "" {
				l.handled.Add(1)
			}
		}
	})
	l.t.Cleanup(func() { w.Kill(); reading.Wait() })
	return w
}
