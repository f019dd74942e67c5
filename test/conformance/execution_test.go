package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// A thousand executions that are used and purged leave nothing behind: when
// their tombstones have ended, what the stores have to keep is what it was.
func TestClosedExecutionsLeaveNothing(t *testing.T) {
	const executions, atOnce = 1000, 32
	m := &inProcess{data: t.TempDir(), port: -1, log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), tombstone: 3 * time.Second}
	m.start(t)
	t.Cleanup(func() { m.stop(t) })
	nc, err := mesh.Connect(t.Context(), mesh.ConnectOptions{URL: m.server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := client.Connect(t.Context(), m.server.URL(), client.DrainWindow(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	use(t, c, nc, "warm-up")
	before := settled(t, nc)

	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(atOnce)
	for i := range executions {
		group.Go(func() error { return useAndPurge(ctx, c, nc, fmt.Sprintf("run-%d", i)) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	after := settled(t, nc)
	t.Logf("live bytes of the logs, and records of the registry: %v before, %v after", before, after)
	for store, n := range after {
		if slack := int64(4096); n > before[store]+slack {
			t.Errorf("%s keeps %d, before it was %d", store, n, before[store])
		}
	}
}

func use(t *testing.T, c *client.Client, nc *nats.Conn, id string) {
	t.Helper()
	if err := useAndPurge(t.Context(), c, nc, id); err != nil {
		t.Fatal(err)
	}
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

// settled is what the stores keep, once nothing of any execution is left.
func settled(t *testing.T, nc *nats.Conn) map[string]int64 {
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
			return kept(t, nc)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("%d executions are still closed, and %d queues are there", len(closed.Executions), queues)
		}
	}
}

// kept is what the newest frames of the ledgers say is live, by stream, and the
// number of records of the registry.
func kept(t *testing.T, nc *nats.Conn) map[string]int64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, name := range []string{"WAYBILL_ROUTER", "WAYBILL_RETRY", "WAYBILL_DLQ", "KV_WAYBILL_REGISTRY"} {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		if name == "KV_WAYBILL_REGISTRY" {
			sums[name] = int64(info.State.Msgs) * 1000 // none may be added
			continue
		}
		for subject := range info.State.Subjects {
			newest, err := s.GetLastMsgForSubject(t.Context(), subject)
			if err != nil {
				t.Fatal(err)
			}
			sums[name] += live(t, newest.Data)
		}
	}
	return sums
}

// live reads what a frame says of its ledger: about how many bytes are needed.
func live(t *testing.T, frame []byte) int64 {
	t.Helper()
	for len(frame) > 0 {
		num, typ, n := protowire.ConsumeTag(frame)
		if n < 0 {
			t.Fatal("a frame cannot be read")
		}
		frame = frame[n:]
		if num == 10 {
			bytes, _ := protowire.ConsumeVarint(frame)
			return int64(bytes)
		}
		frame = frame[protowire.ConsumeFieldValue(num, typ, frame):]
	}
	return 0
}
