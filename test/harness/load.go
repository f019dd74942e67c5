package harness

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Load publishes to one queue all the time, and handles what comes: one of ten
// messages is rejected, half of them fail first. It is for a mesh whose broker, or
// the way to it, fails meanwhile.
type Load struct {
	t         testing.TB
	mesh      *Mesh
	client    *client.Client
	execution string
	delay     time.Duration
	audit     *Audit

	failed             sync.Map // when, by id
	published, handled atomic.Int64
	stop               context.CancelFunc
	running            sync.WaitGroup
}

const (
	routeOfLoad      = "tasks"
	publishersOfLoad = 4
)

// BeginLoad begins one on the route tasks of an execution, where what fails waits for a
// delay at least.
func BeginLoad(t testing.TB, m *Mesh, execution string, delay time.Duration, opts ...client.WorkOption) *Load {
	t.Helper()
	l := &Load{t: t, mesh: m, client: m.Connect(), execution: execution, delay: delay, audit: NewAudit()}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	Work(t, l.client, execution, routeOfLoad, l.handle, append(opts, client.Concurrency(50))...)
	for range publishersOfLoad {
		l.running.Go(func() { l.publish(ctx) })
	}
	t.Cleanup(l.end)
	return l
}

func (l *Load) publish(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		r, err := l.client.Publish(try, client.Queue(l.execution, routeOfLoad), []byte(strconv.Itoa(n%10)))
		cancel()
		if err == nil {
			l.audit.Published(r.MessageID)
			l.published.Add(1)
		}
	}
}

var errOfLoad = errors.New("not yet")

func (l *Load) handle(_ context.Context, d *client.Delivery) error {
	rejected, fails := d.Data[0] == '3', d.Data[0]%2 == 0 // an even digit
	switch {
	case rejected:
		l.audit.Ran(d, protocol.Rejected)
		return client.Reject(errOfLoad)
	case fails && d.Attempt == 1:
		l.failed.LoadOrStore(d.ID, time.Now())
		l.audit.Ran(d, protocol.Failed)
		return errOfLoad
	case d.Attempt == 2:
		if at, known := l.failed.Load(d.ID); known && time.Since(at.(time.Time)) < l.delay {
			l.t.Errorf("%s comes %v after it failed, its delay is %v", d.ID, time.Since(at.(time.Time)), l.delay)
		}
	}
	l.audit.Ran(d, protocol.Acknowledged)
	l.handled.Add(1)
	return nil
}

// Progress waits until so many more are confirmed, and some handled.
func (l *Load) Progress(n int64) {
	l.t.Helper()
	published, handled := l.published.Load()+n, l.handled.Load()+n/4
	AwaitWithin(l.t, 2*Guard, "messages to flow", func() bool {
		return l.published.Load() >= published && l.handled.Load() >= handled
	})
}

func (l *Load) end() {
	l.stop()
	l.running.Wait()
}

// Finish ends the load and looks for each message, once the mesh is at rest.
func (l *Load) Finish() {
	l.t.Helper()
	l.end()
	l.mesh.AwaitRest(l.execution, 2*Guard)
	l.t.Logf("%d messages, %d deliveries", l.audit.CheckKept(l.t, l.mesh, l.execution), l.audit.Runs())
}
