package retry_test

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/books/bookstest"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// tell tells the owner of a ledger what an execution is, as the registry does.
func tell(t *testing.T, m *bookstest.Mesh, name string, q protocol.CloseRequest) protocol.CloseReply {
	t.Helper()
	return request[protocol.CloseReply](t, m, protocol.SubjectWaitingLedger+name+"."+protocol.VerbClose, q)
}

// What waits of a purged execution is dropped, and so is what is handed over
// later, also after a restart; what waits of its neighbours goes on.
func TestPurgedExecutionWaitsForNothing(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(2)
	s := start(t, m, "one")
	there := func(d time.Duration) []bookstest.Parcel {
		var parcels []bookstest.Parcel
		for range 20 {
			parcels = append(parcels, waiting("retry-00", "/queue/e1/route.a", d), waiting("retry-00", "/queue/e1/route.b", d))
		}
		return parcels
	}
	m.Hand(append(there(time.Hour), waiting("retry-00", "/queue/e11/route.a", time.Hour))...)
	closed := protocol.CloseRequest{Execution: "e1", State: protocol.ExecutionClosed}
	if r := tell(t, m, "retry-00", closed); r.Live != 40 || r.Queues != 2 {
		t.Errorf("closed: got %+v, want 40 messages in 2 queues", r)
	}
	purged := protocol.CloseRequest{Execution: "e1", State: protocol.ExecutionPurged}
	meshtest.Eventually(t, "all is dropped", func() bool { return tell(t, m, "retry-00", purged).Live == 0 })
	m.Hand(there(0)...) // accepted, and dropped
	meshtest.Eventually(t, "what came late is dropped", func() bool { return tell(t, m, "retry-00", purged).Live == 0 })
	stop(t, s)
	start(t, m, "one")
	m.Hand(there(0)...)
	meshtest.Eventually(t, "what came after a restart is dropped", func() bool { return tell(t, m, "retry-00", closed).Live == 0 })
	meshtest.Eventually(t, "all are counted", func() bool {
		return request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{}).Counters[protocol.CountDiscarded] == 120
	})
	if left := listed(t, m, protocol.WaitingListRequest{}); len(left) != 1 || left[0].Execution != "e11" {
		t.Errorf("waiting: %+v, want the neighbour's", left)
	}
	meshtest.Eventually(t, "its queues are forgotten", func() bool {
		return tell(t, m, "retry-00", protocol.CloseRequest{Execution: "e1", State: protocol.ExecutionClosed, Forget: true}).Queues == 0
	})
	tell(t, m, "retry-00", protocol.CloseRequest{Execution: "e1", State: protocol.ExecutionOpen})
	again := waiting("retry-00", "/queue/e1/route.a", 0)
	m.Hand(again)
	if got := m.Await(1); got[0].Message.ID != again.Message.ID {
		t.Errorf("%s came, want what was handed over after the execution was reopened", got[0].Message.ID)
	}
}

// A tombstone ends by itself.
func TestTombstonesEnd(t *testing.T) {
	m := bookstest.Start(t)
	m.StartRouter(2)
	start(t, m, "one")
	tell(t, m, "retry-00", protocol.CloseRequest{
		Execution: "e1", State: protocol.ExecutionPurged, Until: time.Now().Add(300 * time.Millisecond).UnixNano(),
	})
	meshtest.Eventually(t, "a message waits again", func() bool {
		m.Hand(waiting(ledger.Name("retry", 0), "/queue/e1/route.a", time.Hour))
		return len(listed(t, m, protocol.WaitingListRequest{})) > 0
	})
}
