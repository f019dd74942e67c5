package pulsar_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestKilledBroker: the broker is killed again and again while messages are published,
// settled, fail and are given up. Each that was confirmed is handled in the end, or
// dead, and none before its delay.
func TestKilledBroker(t *testing.T) {
	t.Parallel()
	p := on(t, live.StartPulsar(t), 500)
	l := p.load("kill")
	l.progress(100)
	kills, soak, began := 3, harness.Soak(t), time.Now()
	if soak > 0 {
		kills = 20
	}
	for n := 0; n < kills || time.Since(began) < soak; n++ {
		p.server.Kill(t)
		p.server.Start(t)
		started := time.Now()
		l.progress(100)
		t.Logf("messages flow %v after start %d", time.Since(started), n+1)
	}
	l.finish()
}

// TestKilledRouter: so is the mesh.
func TestKilledRouter(t *testing.T) {
	p := on(t, live.SharedPulsar(t), 500)
	l := p.load("mesh")
	l.progress(100)
	kills := 3
	if harness.Soak(t) > 0 {
		kills = 20
	}
	for range kills {
		p.mesh.Kill()
		p.mesh.Restart()
		l.progress(100)
	}
	l.finish()
}

// load publishes to one queue all the time, and works there: one of ten messages is
// rejected, half of the others fail first.
type load struct {
	*place
	execution string
	stop      chan struct{}
	running   sync.WaitGroup
	published atomic.Int64
	confirmed sync.Map // by id: whether it is to be rejected
	failed    sync.Map // when
	handled   sync.Map
}

func (p *place) load(execution string) *load {
	p.Helper()
	l := &load{place: p, execution: execution, stop: make(chan struct{})}
	harness.Work(p, p.client, execution, "tasks", l.handler, client.Concurrency(50))
	for range 4 {
		l.running.Go(l.publishing)
	}
	p.Cleanup(l.end)
	return l
}

func (l *load) handler(_ context.Context, d *client.Delivery) error {
	last := d.Data[len(d.Data)-1]
	switch {
	case last == '3':
		return client.Reject(errFails)
	case d.Attempt == 1 && last%2 == 0: // an even digit
		l.failed.LoadOrStore(d.ID, time.Now())
		return errFails
	case d.Attempt == 2:
		if at, known := l.failed.Load(d.ID); known && time.Since(at.(time.Time)) < 500*time.Millisecond {
			l.Errorf("%s comes %v after it failed", d.ID, time.Since(at.(time.Time)))
		}
	}
	l.handled.Store(d.ID, true)
	return nil
}

func (l *load) publishing() {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(l.Context(), 5*time.Second)
		r, err := l.client.Publish(ctx, client.Queue(l.execution, "tasks"), []byte{byte('0' + n%10)})
		cancel()
		if err == nil {
			l.confirmed.Store(r.MessageID, n%10 == 3)
			l.published.Add(1)
		}
	}
}

// progress waits until so many more are confirmed, and some handled.
func (l *load) progress(n int64) {
	l.Helper()
	published, handled := l.published.Load(), count(&l.handled)
	harness.AwaitWithin(l, 2*harness.Guard, "messages to flow", func() bool {
		return l.published.Load() >= published+n && count(&l.handled) >= handled+n/4
	})
}

func count(m *sync.Map) (n int64) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

// finish ends the load and looks for each message.
func (l *load) finish() {
	l.Helper()
	l.end()
	harness.AwaitWithin(l, 2*harness.Guard, "all to come to rest", func() bool {
		q := l.mesh.Queue(l.execution, "tasks")
		return q.Counters[protocol.CountPublished] > 0 && q.Ready+q.InFlight+q.Waiting+q.Moving == 0
	})
	dead := map[string]bool{}
	for _, letter := range l.mesh.Dead("/queue/" + l.execution + "/tasks") {
		dead[letter.MessageID] = true
	}
	lost := 0
	l.confirmed.Range(func(id, rejected any) bool {
		_, ran := l.handled.Load(id)
		if rejected.(bool) && !dead[id.(string)] || !rejected.(bool) && !ran {
			lost++
			l.Errorf("%v was confirmed and is gone (to be rejected: %v)", id, rejected)
		}
		return lost < 10
	})
}

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
		"message TTL":   harness.OnPulsar(t, server, acts, 500),
		"public/nobody": harness.OnPulsar(t, server, "nobody", 500),
	} {
		up := harness.Up(t, filepath.Join(t.TempDir(), "data"), args...)
		if code := up.Exit(harness.Guard); code == 0 || !strings.Contains(up.Output(), want) || strings.Contains(up.Output(), "s3cret") {
			t.Errorf("it ends with %d and says %q, want %s", code, up.Output(), want)
		}
	}
}
