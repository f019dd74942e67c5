package pulsar_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestKilledBroker: the broker is killed again and again while messages are published,
// settled, fail and are given up. Each that was confirmed is handled in the end, or
// dead, and none before its delay.
func TestKilledBroker(t *testing.T) {
	t.Parallel()
	p := on(t, live.StartPulsar(t), waits)
	l := harness.BeginLoad(t, p.mesh, "kill", waits*time.Millisecond)
	l.Progress(100)
	for n := range harness.Rounds(t, 3, 20) {
		p.server.Kill(t)
		p.server.Start(t)
		started := time.Now()
		l.Progress(100)
		t.Logf("messages flow %v after start %d", time.Since(started), n+1)
	}
	l.Finish()
}

// TestKilledRouter: so is the mesh.
func TestKilledRouter(t *testing.T) {
	p := on(t, live.SharedPulsar(t), waits)
	l := harness.BeginLoad(t, p.mesh, "mesh", waits*time.Millisecond)
	l.Progress(100)
	for range harness.Rounds(t, 3, 20) {
		p.mesh.Kill()
		p.mesh.Restart()
		l.Progress(100)
	}
	l.Finish()
}

const waits = 500 // ms, what fails under a load

// A broker that cannot be reached, a namespace that is not there or acts instead of the
// mesh, fails the start, and says which.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	server := live.SharedPulsar(t)
	acts := server.Namespace(t)
	server.Admin(t, "POST", "namespaces/"+live.Tenant+"/"+acts+"/messageTTL", 60, nil)
	away := harness.Configuration(t, "adapter:\n  name: pulsar\n  config:\n    url: pulsar://token:s3cret@127.0.0.1:1\n    admin_url: http://127.0.0.1:1\n")
	for want, args := range map[string][]string{
		"127.0.0.1:1":   {"--config", away},
		"message TTL":   harness.OnPulsar(t, server, acts, waits),
		"public/nobody": harness.OnPulsar(t, server, "nobody", waits),
	} {
		up := harness.Up(t, filepath.Join(t.TempDir(), "data"), args...)
		if code := up.Exit(harness.Guard); code == 0 || !strings.Contains(up.Output(), want) || strings.Contains(up.Output(), "s3cret") {
			t.Errorf("it ends with %d and says %q, want %s", code, up.Output(), want)
		}
	}
}
