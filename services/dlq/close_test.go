package dlq_test

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/books/bookstest"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// tell tells the owners of all ledgers what an execution is, as the registry
// does, and says how many of its letters are left.
func tell(t *testing.T, m *bookstest.Mesh, q protocol.CloseRequest) (left int64) {
	t.Helper()
	for i := range 4 {
		left += request[protocol.CloseReply](t, m, protocol.SubjectDeadLedger+ledger.Name("dlq", i)+"."+protocol.VerbClose, q).Live
	}
	return left
}

// The letters of a closed execution stay when others are redriven, one by one
// or all, in any number of steps.
func TestClosedExecutionsAreNotRedriven(t *testing.T) {
	m := running(t)
	letters := many(60, 3)
	m.Hand(letters...)
	if left := tell(t, m, protocol.CloseRequest{Execution: "e1", State: protocol.ExecutionClosed}); left != 20 {
		t.Errorf("%d letters of the execution, want 20", left)
	}
	for _, q := range []protocol.DeadActRequest{{Queue: queueOf(1)}, {MessageID: letters[1].Message.ID.String()}} {
		_, err := mesh.Request[protocol.DeadActReply](meshtest.Context(t), m.Conn, protocol.SubjectDeadRedrive, q)
		if protocol.CodeOf(err) != protocol.CodeExecutionClosed {
			t.Errorf("redriving %+v: got %v, want EXECUTION_CLOSED", q, err)
		}
	}
	all := request[protocol.DeadActReply](t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{All: true})
	if all.Count != 40 || all.Refused != 20 {
		t.Errorf("redriving all: got %+v, want 40, and 20 refused", all)
	}
	m.Await(40)
	if got := listed(t, m, "", 50); len(got) != 20 {
		t.Errorf("%d letters stayed, want 20", len(got))
	}
	tell(t, m, protocol.CloseRequest{Execution: "e1", State: protocol.ExecutionOpen})
	if n := act(t, m, protocol.SubjectDeadRedrive, protocol.DeadActRequest{All: true}); n != 20 {
		t.Errorf("reopened: redrove %d, want 20", n)
	}
	m.Await(60)
}

// The letters of a purged execution are dropped, those that come later too.
func TestPurgedExecutionHasNoLetters(t *testing.T) {
	m := running(t)
	m.Hand(many(30, 3)...)
	purged := protocol.CloseRequest{Execution: "e1", State: protocol.ExecutionPurged}
	meshtest.Eventually(t, "its letters are dropped", func() bool { return tell(t, m, purged) == 0 })
	m.Hand(dead(queueOf(1), time.Hour), dead(queueOf(2), time.Hour))
	meshtest.Eventually(t, "what came late is dropped", func() bool { return tell(t, m, purged) == 0 })
	if got := count(t, m); got != 21 {
		t.Errorf("%d letters, want the neighbours' 21", got)
	}
	meshtest.Eventually(t, "they are counted", func() bool {
		return request[protocol.Stats](t, m, protocol.SubjectStats, protocol.Empty{}).Counters[protocol.CountDiscarded] == 11
	})
}
