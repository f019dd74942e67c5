package chaos_test

import (
	"testing"

	"github.com/waybill-mq/waybill/test/harness"
)

// On a cluster of three NATS servers, of which one after the other goes, the one
// that leads the routers' log first, services and clients go on with the two
// that are left, and nothing is lost.
func TestAClusterLosesOneServer(t *testing.T) {
	m := harness.StartCluster(t, map[string]int{"router": 2})
	l := &load{t: t, mesh: m.Mesh, execution: "cluster", decide: life, lingers: someLinger}
	l.start()
	for range 2 {
		l.progress(300)
		victim := m.LeaderOf("WAYBILL_ROUTER")
		m.StopServer(victim)
		l.progress(300)
		m.StartServer(victim)
	}
	m.AwaitReady()
	l.progress(300)
	l.operated()
	if v := l.finish(); v.Dead == 0 || v.Redriven == 0 {
		t.Errorf("something was never tried: %+v", v)
	}
	for _, i := range m.Instances() {
		if i.Ended() {
			t.Errorf("%s has ended", i.Name)
		}
	}
}
