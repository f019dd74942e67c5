package registry_test

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/registry"
)

// Several registries know the same executions closed; subscriptions of one that
// is gone are laid by, and are back when it is reopened. With no ledgers
// anywhere, a closed execution is gone at once.
func TestSeveralRegistriesCloseTogether(t *testing.T) {
	server := meshtest.Server(t)
	for _, name := range []string{"a", "b"} {
		mustStart(t, server, registry.Options{Instance: name, Silence: time.Minute})
	}
	nc := meshtest.Connect(t, server)
	subscriptions := func() []float64 {
		var all []float64
		stats, err := mesh.Gather[protocol.Stats](meshtest.Context(t), nc, protocol.SubjectStats, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stats {
			all = append(all, s.Gauges["subscriptions"])
		}
		return all
	}
	closed := func() (states []protocol.ExecutionState) {
		for range 4 { // either may answer
			for _, e := range request[protocol.ExecutionsPage](t, nc, protocol.SubjectExecutions, protocol.ExecutionsRequest{}).Executions {
				states = append(states, e.State)
			}
		}
		return slices.Compact(states)
	}
	hello(t, nc, one("w1", execution, "a"))
	hello(t, nc, one("w2", "other", "a"))
	meshtest.Eventually(t, "both know two subscriptions", func() bool { return slices.Equal(subscriptions(), []float64{2, 2}) })
	for _, purge := range []bool{false, true} { // repeating it has no effect
		got := request[protocol.Execution](t, nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: execution, Purge: purge})
		if got.State != protocol.ExecutionGone || got.ClosedAt.IsZero() || time.Until(got.Until) < 23*time.Hour {
			t.Errorf("closing: got %+v", got)
		}
	}
	meshtest.Eventually(t, "both know it is gone", func() bool { return slices.Equal(closed(), []protocol.ExecutionState{protocol.ExecutionGone}) })
	meshtest.Eventually(t, "its subscription rests", func() bool { return slices.Equal(subscriptions(), []float64{1, 1}) })
	request[protocol.Empty](t, nc, protocol.SubjectExecutionReopen, protocol.ExecutionReopenRequest{Execution: execution})
	meshtest.Eventually(t, "its subscription is back", func() bool { return slices.Equal(subscriptions(), []float64{2, 2}) })
	meshtest.Eventually(t, "none is closed", func() bool { return len(closed()) == 0 })
}

// A tombstone ends, and what was declared of its execution holds again.
func TestATombstoneEnds(t *testing.T) {
	server := meshtest.Server(t)
	mustStart(t, server, registry.Options{Silence: time.Minute, Tombstone: 500 * time.Millisecond})
	nc := meshtest.Connect(t, server)
	hello(t, nc, one("w1", execution, "a"))
	request[protocol.Execution](t, nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: execution})
	meshtest.Eventually(t, "the execution to be as if it was never closed", func() bool {
		page := request[protocol.ExecutionsPage](t, nc, protocol.SubjectExecutions, protocol.ExecutionsRequest{})
		subs := request[protocol.SubscriptionsPage](t, nc, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Execution: execution})
		return len(page.Executions) == 0 && len(subs.Subscriptions) == 1
	})
}

// A ledger that cannot forget an execution yet, since somebody still uses it there, is
// told again until it has.
func TestWhoCannotForgetIsToldAgain(t *testing.T) {
	t.Parallel()
	server := meshtest.Server(t)
	lane := mustLanes(t, server)
	mustStart(t, server, registry.Options{})
	var told atomic.Int64
	forgotten := make(chan struct{}, lanes*1000)
	if _, err := lane.nc.Subscribe(protocol.SubjectLane+"*."+protocol.VerbClose, func(m *nats.Msg) {
		var q protocol.CloseRequest
		var r protocol.CloseReply
		if json.Unmarshal(m.Data, &q) == nil && q.Forget {
			if r.Queues = 1; told.Add(1) > 50*lanes { // more than a close waits for
				r.Queues = 0
				forgotten <- struct{}{}
			}
		}
		body, err := json.Marshal(r)
		if err == nil {
			err = m.Respond(body)
		}
		if err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	nc := meshtest.Connect(t, server)
	closed := request[protocol.Execution](t, nc, protocol.SubjectExecutionClose, protocol.ExecutionCloseRequest{Execution: execution})
	if closed.State != protocol.ExecutionGone {
		t.Errorf("closed: %+v", closed)
	}
	meshtest.Eventually(t, "both to have forgotten", func() bool { return len(forgotten) >= lanes })
}
