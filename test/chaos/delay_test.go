package chaos_test

import (
	"testing"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// With `delay: mesh` what failed passes from the broker to the mesh: kill -9 of the mesh
// at any moment loses none of it, and none comes early.
func TestKilledMeshDelaysWhatABrokerHas(t *testing.T) {
	t.Parallel()
	r := live.SharedRabbitMQ(t)
	m := harness.Start(t, harness.OnRabbitMQ(t, r.VirtualHost(t), "delay: mesh")...)
	l := &load{t: t, mesh: m, execution: "delayed", decide: life, lingers: someLinger}
	l.start()
	d := startDelays(l)
	l.progress(300)
	kills := brokerKills
	if harness.Soak(t) > 0 {
		kills = brokerKillsInSoak
	}
	for range kills {
		killAndRestart(l)
		d.publish()
	}
	l.progress(300)
	l.stop()
	l.running.Wait()
	m.AwaitRest(l.execution, harness.Guard)
	n := l.audit.CheckKept(t, m, l.execution)
	t.Logf("%d messages, %d deliveries", n, l.audit.Runs())
	d.finish()
	m.Balanced()
}
