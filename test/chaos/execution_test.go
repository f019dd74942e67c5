package chaos_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// Executions are closed and purged under load while the mesh is killed: after
// the answer to a close no publish is taken, all that was taken before is
// finished or dropped, and of each execution nothing is left in the end.
func TestKillWhileExecutionsClose(t *testing.T) {
	t.Parallel()
	const executions, kills = 12, 3
	m := harness.Start(t)
	c := m.Connect()
	var load sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer func() { stop(); load.Wait() }()
	finished := make([]*closing, executions)
	for i := range finished {
		x := &closing{t: t, mesh: m, client: c, id: fmt.Sprintf("run-%d", i), purge: i%2 == 1, handled: map[string]int{}}
		finished[i] = x
		x.work()
		load.Go(func() { x.publish(ctx) })
	}
	harness.Await(t, "some of each", func() bool {
		for _, x := range finished {
			if x.taken() < 30 {
				return false
			}
		}
		return true
	})
	for i, x := range finished {
		load.Go(func() { x.close(ctx) })
		if i%(executions/kills) == 0 {
			m.Kill()
			m.Restart()
		}
	}
	for _, x := range finished {
		x.awaitGone()
		x.check()
	}
	m.Balanced()
}

// closing is an execution that is published to until it is closed.
type closing struct {
	t      *testing.T
	mesh   *harness.Mesh
	client *client.Client
	id     string
	purge  bool

	mu       sync.Mutex
	answered []string
	handled  map[string]int
	closed   bool // the close was answered
}

func (x *closing) taken() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.answered)
}

func (x *closing) work() {
	x.t.Helper()
	_, err := x.client.Work(x.t.Context(), x.id, "r", func(_ context.Context, d *client.Delivery) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.handled[d.ID]++
		if d.Attempt == 1 && len(x.handled)%7 == 0 {
			return errToldTo
		}
		return nil
	}, client.Backoff(100*time.Millisecond))
	if err != nil {
		x.t.Fatal(err)
	}
}

// publish publishes until it is refused.
func (x *closing) publish(ctx context.Context) {
	for ctx.Err() == nil {
		x.mu.Lock()
		closed := x.closed
		x.mu.Unlock()
		receipt, err := x.client.Publish(ctx, client.Queue(x.id, "r"), []byte("x"))
		if protocol.CodeOf(err) == protocol.CodeExecutionClosed {
			return
		}
		if err != nil {
			pause(ctx, patience)
			continue
		}
		if closed {
			x.t.Errorf("%s took a publish after it was closed", x.id)
			return
		}
		x.mu.Lock()
		x.answered = append(x.answered, receipt.MessageID)
		x.mu.Unlock()
		pause(ctx, time.Millisecond)
	}
}

// close closes, again and again until that is answered.
func (x *closing) close(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := x.mesh.TryClose(x.id, x.purge); err == nil {
			x.mu.Lock()
			x.closed = true
			x.mu.Unlock()
			return
		}
		pause(ctx, patience)
	}
}

func (x *closing) awaitGone() {
	x.t.Helper()
	harness.Await(x.t, x.id+" to be gone", func() bool {
		closed, err := x.mesh.TryClose(x.id, x.purge)
		return err == nil && closed.State == protocol.ExecutionGone
	})
	var left map[string]protocol.QueueInfo
	defer func() {
		if len(left) > 0 {
			x.t.Errorf("%s has %+v", x.id, left)
		}
	}()
	harness.Await(x.t, x.id+" to be forgotten", func() bool {
		left = x.mesh.Queues(x.id)
		return len(left) == 0
	})
	if letters := x.mesh.Dead(""); len(letters) > 0 {
		x.t.Errorf("dead letters are left: %+v", letters)
	}
}

// check: all that was taken by an execution that was closed and not purged was
// handled.
func (x *closing) check() {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range x.answered {
		if !x.purge && x.handled[id] == 0 {
			x.t.Errorf("%s: message %s was taken and not handled", x.id, id)
		}
	}
}
