package chaos_test

import (
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// SIGTERM under load, again and again: the mesh is gone within its drain
// deadline, nothing is lost, nothing comes twice, and nothing is dead.
func TestTerminatedMeshLosesNothing(t *testing.T) {
	t.Parallel()
	const (
		drain  = 10 * time.Second // the default of waybill up
		margin = 30 * time.Second // for a machine that is slow
	)
	l := &load{
		t: t, mesh: harness.Start(t), execution: "term", lingers: someLinger,
		decide: func(job, _, attempt int) protocol.Outcome { return failedIf(job%50 == 1 && attempt == 1) },
	}
	l.start()
	for range 3 {
		l.progress(500)
		began := time.Now()
		l.mesh.Terminate()
		if code := l.mesh.Exit(drain + margin); code != 0 {
			t.Errorf("exit code %d", code)
		}
		t.Logf("ended in %v", time.Since(began))
		l.mesh.Restart()
	}
	l.progress(500)
	if v := l.finish(); v.Dead+v.Discarded+v.Repeated != 0 {
		t.Errorf("something was dead, discarded or came twice: %+v", v)
	}
}
