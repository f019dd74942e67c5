package pulsar_test

import (
	"fmt"
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
	at := func(url, admin string) []string {
		return []string{"--config", harness.Configuration(t, fmt.Sprintf("adapter: {name: pulsar, config: {url: %q, admin_url: %q}}\n", url, admin))}
	}
	const away = "pulsar://token:s3cret@127.0.0.1:1"
	for want, args := range map[string][]string{
		"the broker pulsar at pulsar://127.0.0.1:1 cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused; start it, or correct url": at(away, server.AdminURL()),
		"connect: connection refused; start it, or correct admin_url":                                                                              at(server.URL(), "http://127.0.0.1:1"),
		"does not answer as Pulsar does": at(strings.Replace(server.AdminURL(), "http:", "pulsar:", 1), server.AdminURL()),
		"message TTL":                    harness.OnPulsar(t, server, acts, waits),
		"public/nobody":                  harness.OnPulsar(t, server, "nobody", waits),
	} {
		up := harness.Up(t, filepath.Join(t.TempDir(), "data"), args...)
		if code := up.Exit(harness.Guard); code == 0 || !strings.Contains(up.Output(), want) || strings.Contains(up.Output(), "s3cret") {
			t.Errorf("it ends with %d and says %q, want %s", code, up.Output(), want)
		}
	}
}
