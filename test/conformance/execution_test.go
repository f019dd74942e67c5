package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

// Executions that are used and purged leave nothing behind: when their
// tombstones have ended, the ledgers have no message, no note and no queue but
// the one for the sum of what was counted, and the registry has no record.
func TestClosedExecutionsLeaveNothing(t *testing.T) {
	t.Parallel()
	const executions = 128
	m := &inProcess{data: t.TempDir(), port: -1, log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), tombstone: 3 * time.Second}
	m.start(t)
	t.Cleanup(func() { m.stop(t) })
	before := m.recordsAfter(t, "first", 1)
	after := m.recordsAfter(t, "run", executions)
	if after > before { // fewer: a client of before is forgotten by now
		t.Errorf("the registry has %d records, %d before %d executions", after, before, executions)
	}
	m.restart(t) // every ledger has looked at the time
	m.stopServices(t)
	nc := m.connect(t)
	defer nc.Close()
	for service, ledgers := range map[string]int{"router": 16, "retry": 4, "dlq": 4} {
		for i := range ledgers {
			inspect(t, nc, ledger.StreamOf(service), ledger.Name(service, i))
		}
	}
}

// recordsAfter uses and purges n executions, waits until they are forgotten and
// returns how many records the registry has then.
func (m *inProcess) recordsAfter(t *testing.T, prefix string, n int) uint64 {
	t.Helper()
	const atOnce = 32
	nc := m.connect(t)
	defer nc.Close()
	c, err := client.Connect(t.Context(), m.server.URL(), client.DrainWindow(0))
	if err != nil {
		t.Fatal(err)
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return useAndPurge(ctx, c, nc, fmt.Sprintf("%s-%d", prefix, i)) })
	}
	err = group.Wait()
	if err := errors.Join(err, c.Close(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
	awaitForgotten(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "KV_"+registry.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func (m *inProcess) connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := mesh.Connect(t.Context(), mesh.ConnectOptions{URL: m.server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// useAndPurge has a message ready, one waiting and one dead in an execution, a
// policy and a subscription, and purges it.
func useAndPurge(ctx context.Context, c *client.Client, nc *nats.Conn, id string) error {
	ctx, cancel := context.WithTimeout(ctx, guard)
	defer cancel()
	died := make(chan struct{})
	w, err := c.Work(ctx, id, "dies", func(context.Context, *client.Delivery) error {
		defer close(died)
		return client.Reject(fmt.Errorf("it must die"))
	}, client.MaxRetries(7))
	if err != nil {
		return err
	}
	for route, opt := range map[string]client.PublishOption{"stays": client.Delay(0), "waits": client.Delay(time.Hour), "dies": client.Delay(0)} {
		if _, err := c.Publish(ctx, client.Queue(id, route), []byte(route), opt); err != nil {
			return err
		}
	}
	select {
	case <-died:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := w.Stop(ctx); err != nil {
		return err
	}
	closed, err := mesh.Request[protocol.Execution](ctx, nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: id, Purge: true})
	if err == nil && closed.Left != 0 {
		err = fmt.Errorf("%s: %d messages are left", id, closed.Left)
	}
	return err
}

// awaitForgotten waits until nothing of any execution is known.
func awaitForgotten(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		closed, err := mesh.Request[protocol.ExecutionsPage](ctx, nc, protocol.SubjectExecutions, protocol.ExecutionsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		queues := 0
		for _, subject := range []string{protocol.SubjectQueues, protocol.SubjectWaitingQueues, protocol.SubjectDeadQueues} {
			page, err := mesh.Request[protocol.QueuesPage](ctx, nc, subject, protocol.QueuesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			queues += len(page.Queues)
		}
		if len(closed.Executions)+queues == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("%d executions are still closed, and %d queues are there", len(closed.Executions), queues)
		}
	}
}

// inspect takes a ledger over and says what of the executions is in it.
func inspect(t *testing.T, nc *nats.Conn, stream, name string) {
	t.Helper()
	l, err := ledger.Open[struct{}](t.Context(), ledger.Options{Conn: nc, Stream: stream, Name: name}, &inspector{T: t})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// inspector owns a ledger to look at it.
type inspector struct{ *testing.T }

func (i *inspector) Opened(l *ledger.Ledger) {
	if n, _ := l.Live(); n > 0 {
		i.Errorf("%s has %d messages", l.Name(), n)
	}
	for q := range l.Queues() {
		if q.Name != "" {
			i.Errorf("%s has the queue %s", l.Name(), q.Name)
		}
	}
	for key := range l.Notes() {
		i.Errorf("%s has the note %s", l.Name(), key)
	}
}

func (i *inspector) Handle([]struct{})                                         {}
func (i *inspector) Committed(*ledger.Commit)                                  {}
func (i *inspector) Loaded(*ledger.Entry, *ledger.Message, ledger.Meta, error) {}
func (i *inspector) Incoming(*ledger.Message, *ledger.Meta) error              { return nil }
func (i *inspector) Tick(time.Time) time.Time                                  { return time.Time{} }
func (i *inspector) Closed(error, []any)                                       {}
