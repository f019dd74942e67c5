package fault_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/test/harness"
)

// An idle mesh with many consumers says next to nothing and takes next to no
// processor: nobody polls. What remains is a heartbeat of each service and
// worker.
func TestIdleMesh(t *testing.T) {
	const (
		consumers   = 200
		mostPerSec  = 50.0 // messages of all kinds, whatever the number of consumers
		mostOfACore = 0.25 // also under the race detector
	)
	length := 10 * time.Second
	if harness.Soak(t) > 0 {
		length = time.Minute
	}
	m := harness.Start(t)
	c := m.Connect()
	for i := range consumers {
		work(t, c, "e", fmt.Sprintf("r.%d", i), func(context.Context, *client.Delivery) error { return nil })
	}
	publish(t, c, "e", "r.1", nil)
	m.AwaitRest("e", harness.Guard)
	all := listenToAll(t, m)
	harness.Wait(t, 2*time.Second) // what the start left behind settles

	all.reset()
	cpu := m.Metric("process_cpu_seconds_total")
	harness.Wait(t, length)
	used := (m.Metric("process_cpu_seconds_total") - cpu) / length.Seconds()
	total, report := all.report(length)
	t.Logf("%.1f messages/s, %.1f %% of a core\n%s", total, 100*used, report)
	if total > mostPerSec {
		t.Errorf("%.1f messages/s", total)
	}
	if used > mostOfACore {
		t.Errorf("%.0f %% of a core", 100*used)
	}
	if all.saw("wb.v1.deliver.") || all.saw("wb.log.") || all.saw("$JS.API.STREAM.MSG.GET.") || all.saw("$JS.API.CONSUMER.MSG.NEXT.") {
		t.Error("it delivered, wrote or read although nothing happened")
	}
}

// ear counts everything that is said on the mesh's NATS, by subject.
type ear struct {
	mu    sync.Mutex
	count map[string]int
}

func listenToAll(t *testing.T, m *harness.Mesh) *ear {
	t.Helper()
	nc, err := nats.Connect(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	e := &ear{count: make(map[string]int)}
	if _, err := nc.Subscribe(">", func(msg *nats.Msg) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.count[kind(msg.Subject)]++
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return e
}

// kind leaves out what tells single messages of a kind apart.
func kind(subject string) string {
	if strings.HasPrefix(subject, "_INBOX.") {
		return "_INBOX.>"
	}
	parts := strings.Split(subject, ".")
	return strings.Join(parts[:min(len(parts), 4)], ".")
}

func (e *ear) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.count)
}

func (e *ear) report(length time.Duration) (perSecond float64, table string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for _, subject := range slices.Sorted(maps.Keys(e.count)) {
		n := float64(e.count[subject]) / length.Seconds()
		perSecond += n
		fmt.Fprintf(&b, "%8.1f/s %s\n", n, subject)
	}
	return perSecond, b.String()
}

func (e *ear) saw(prefix string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for subject := range e.count {
		if strings.HasPrefix(subject, prefix) {
			return true
		}
	}
	return false
}
