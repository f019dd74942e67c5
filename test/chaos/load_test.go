package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
	"github.com/waybill-mq/waybill/test/harness"
)

const (
	queues     = 7
	publishers = 24
	workers    = 16 // handlers at once, a queue
	maxRetries = 3
	backoff    = 20 * time.Millisecond
	patience   = 20 * time.Millisecond // before what was refused is tried again
)

// load sends jobs through a mesh, as publishers, workers and an operator do, and
// keeps the book.
type load struct {
	t         *testing.T
	mesh      *harness.Mesh
	client    *client.Client
	audit     *harness.Audit
	execution string
	decide    func(job, generation, attempt int) protocol.Outcome
	lingers   func(job int) time.Duration
	elsewhere bool // workers are processes of their own, which the test starts

	jobs    atomic.Int64
	handled atomic.Int64

	redriven, discarded atomic.Int64 // requests of the operator that had an effect

	stop    context.CancelFunc
	rest    context.CancelFunc // of the operator alone
	rested  chan struct{}      // it has
	running sync.WaitGroup
}

// start lets the load run until finish.
func (l *load) start() {
	l.t.Helper()
	l.client, l.audit = l.mesh.Connect(), harness.NewAudit()
	for i := range queues {
		if !l.elsewhere {
			l.work(route(i))
		}
	}
	ctx, stop := context.WithCancel(l.t.Context())
	operating, rest := context.WithCancel(ctx)
	l.stop, l.rest, l.rested = stop, rest, make(chan struct{})
	for range publishers {
		l.running.Go(func() { l.publish(ctx) })
	}
	l.running.Go(func() {
		defer close(l.rested)
		l.operate(operating)
	})
	l.t.Cleanup(func() { stop(); l.running.Wait() })
}

func (l *load) work(route string) {
	l.t.Helper()
	_, err := l.client.Work(l.t.Context(), l.execution, route, l.handle,
		client.Concurrency(workers), client.MaxRetries(maxRetries), client.Backoff(backoff))
	if err != nil {
		l.t.Fatal(err)
	}
}

// operated returns when the operator, whom each failure keeps waiting, has redriven
// and discarded something.
func (l *load) operated() {
	l.t.Helper()
	harness.Await(l.t, "the operator to have done both", func() bool { return l.redriven.Load() > 0 && l.discarded.Load() > 0 })
}

// finish ends publishers and, a little before, the operator, so that something is
// left dead; it lets the mesh come to rest, and holds it against the book.
func (l *load) finish() harness.Verdict {
	l.t.Helper()
	l.rest()
	harness.Receive(l.t, "the operator's end", l.rested)
	l.progress(100)
	l.stop()
	l.running.Wait()
	l.mesh.AwaitRest(l.execution, harness.Guard)
	v := l.audit.Check(l.t, l.mesh, l.execution)
	l.mesh.Balanced()
	l.t.Logf("%+v", v)
	return v
}

// progress returns when that many more deliveries have been handled.
func (l *load) progress(n int64) {
	l.t.Helper()
	target := l.handled.Load() + n
	harness.Await(l.t, fmt.Sprintf("%d more deliveries handled", n), func() bool { return l.handled.Load() >= target })
}

func route(i int) string { return "step." + strconv.Itoa(i) }

// publish publishes one job after another. Most are published again until there
// is an answer, under an id that makes that harmless; of the rest nobody knows,
// without an answer, whether they were stored.
func (l *load) publish(ctx context.Context) {
	for ctx.Err() == nil {
		job := int(l.jobs.Add(1))
		to := client.Queue(l.execution, route(job%queues))
		data := []byte(strconv.Itoa(job))
		if job%8 == 0 {
			l.attempt(ctx, to, data)
			continue
		}
		for !l.attempt(ctx, to, data, client.DedupID(strconv.Itoa(job))) && ctx.Err() == nil {
			pause(ctx, patience)
		}
	}
}

func (l *load) attempt(ctx context.Context, to client.Destination, data []byte, opts ...client.PublishOption) (answered bool) {
	receipt, err := l.client.Publish(ctx, to, data, opts...)
	if err == nil {
		l.audit.Published(receipt.MessageID)
		return true
	}
	switch code := protocol.CodeOf(err); {
	case errors.Is(err, context.Canceled), code == protocol.CodeUnavailable, code == protocol.CodeTimeout:
	default:
		l.t.Errorf("a publish was refused: %v", err)
	}
	return false
}

var errToldTo = errors.New("the job says so")

func (l *load) handle(ctx context.Context, d *client.Delivery) error {
	job, err := jobOf(d)
	if err != nil || d.Execution != l.execution {
		l.t.Errorf("%q came to %s of %s (%v)", d.Data, d.Route, d.Execution, err)
	}
	if l.lingers != nil {
		pause(ctx, l.lingers(job))
	}
	outcome := l.decide(job, d.Generation, d.Attempt)
	l.audit.Ran(d, outcome)
	l.handled.Add(1)
	return asError(outcome)
}

func jobOf(d *client.Delivery) (int, error) {
	job, err := strconv.Atoi(string(d.Data))
	if err == nil && d.Route != route(job%queues) {
		err = errors.New("it belongs to another route")
	}
	return job, err
}

func asError(o protocol.Outcome) error {
	switch o {
	case protocol.Failed:
		return errToldTo
	case protocol.Rejected:
		return client.Reject(harness.ErrReject)
	default:
		return nil
	}
}

// operate redrives and discards dead letters of one queue after another: all of
// them, or one.
func (l *load) operate(ctx context.Context) {
	for turn := 0; ctx.Err() == nil; turn++ {
		pause(ctx, 2*patience)
		queue := scope.ScopedName(l.execution, route(turn%queues))
		letters, err := l.mesh.SomeDead(queue, 20)
		if err != nil || len(letters) == 0 {
			continue
		}
		switch turn % 3 { // queues has no factor 3, so that each has its turn
		case 0:
			l.redrive(protocol.DeadActRequest{Queue: queue})
		case 1:
			l.redrive(protocol.DeadActRequest{MessageID: letters[len(letters)/2].MessageID})
		case 2:
			l.discard(letters[0].MessageID)
		}
	}
}

func (l *load) redrive(what protocol.DeadActRequest) {
	if n, err := l.mesh.TryRedrive(what); err == nil { // what was redriven without an answer, the deliveries tell
		l.redriven.Add(n)
	}
}

func (l *load) discard(id string) {
	l.audit.Discarding(id)
	if n, err := l.mesh.TryDiscard(protocol.DeadActRequest{MessageID: id}); err == nil && n == 1 {
		l.audit.Discarded(id)
		l.discarded.Add(1)
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
