package fault_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// between is a worker behind a network that can fail, and another beside it.
type between struct {
	m             *harness.Mesh
	proxy         *harness.Proxy
	publisher     *client.Client
	first, second *handle // behind the network; not, once other is called
	t             *testing.T
}

func startBetween(t *testing.T) *between {
	t.Helper()
	m := harness.Start(t)
	b := &between{
		m: m, t: t, proxy: harness.NewProxy(t, m.URL), publisher: m.Connect(),
		first: newHandle(), second: newHandle(),
	}
	work(t, harness.Connect(t, b.proxy.URL()), "e", "r", b.first.run, client.Concurrency(1))
	return b
}

func (b *between) other() {
	b.t.Helper()
	work(b.t, b.publisher, "e", "r", b.second.run, client.Concurrency(1))
}

// settled awaits rest and returns the counters.
func (b *between) settled() map[string]uint64 {
	b.t.Helper()
	q := b.m.AwaitRest("e", harness.Guard)["/queue/e/r"]
	if q.Dead != 0 || q.Counters[protocol.CountFailed] != 0 {
		b.t.Errorf("something failed: %+v", q)
	}
	return q.Counters
}

// A cut that the worker comes back from costs nothing: its handler runs on and
// its answer counts.
func TestCutConnectionMidHandler(t *testing.T) {
	t.Parallel()
	b := startBetween(t)
	id := publish(t, b.publisher, "e", "r", []byte("x"))
	same(t, b.first.next(t), id, 1, 0)
	for range 3 {
		b.proxy.Cut()
	}
	b.first.answer <- nil
	if n := b.settled(); n[protocol.CountAcknowledged] != 1 || n[protocol.CountDelivered] != 1 {
		t.Errorf("counted %v", n)
	}
	b.first.none(t)
}

// A worker that stays away is given up: another gets its message, with the
// attempt unspent, and what the first one says later is superseded.
func TestWorkerCutOff(t *testing.T) {
	t.Parallel()
	b := startBetween(t)
	id := publish(t, b.publisher, "e", "r", []byte("x"))
	same(t, b.first.next(t), id, 1, 0)
	b.proxy.Part()
	b.other()
	same(t, b.second.next(t), id, 1, 0)
	b.first.answer <- nil
	b.proxy.Join()
	b.second.answer <- nil
	n := b.settled()
	if n[protocol.CountAcknowledged] != 1 || n[protocol.CountVanished] != 1 {
		t.Errorf("counted %v", n)
	}
	// It may be told more than once, as nobody knows whether it came the first time.
	harness.Await(t, "one of the two answers is counted as superseded", func() bool {
		return b.m.Metric("waybill_superseded_total") >= 1
	})
	if lost := b.m.Metric("waybill_lost_total"); lost != 0 {
		t.Errorf("%v answers are counted as lost", lost)
	}
}

// A network that goes silent without a word is noticed too, by the silence.
func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	const noticed = protocol.WorkerSilence + 30*time.Second // for a machine that is slow
	b := startBetween(t)
	id := publish(t, b.publisher, "e", "r", []byte("x"))
	same(t, b.first.next(t), id, 1, 0)
	b.proxy.Stall(harness.ToMesh)
	b.proxy.Stall(harness.FromMesh)
	b.other()
	silent := time.Now()
	same(t, b.second.next(t), id, 1, 0)
	if took := time.Since(silent); took > noticed {
		t.Errorf("noticed after %v", took)
	}
	b.second.answer <- nil
	b.first.answer <- nil // into the silence; it arrives when that ends
	b.proxy.Join()
	if n := b.settled(); n[protocol.CountAcknowledged] != 1 || n[protocol.CountVanished] != 1 {
		t.Errorf("counted %v", n)
	}
}

// An answer that is lost on its way is told again: the handler does not run
// twice.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	b := startBetween(t)
	publish(t, b.publisher, "e", "r", []byte("x"))
	b.first.next(t)
	b.proxy.Swallow(harness.ToMesh)
	b.first.answer <- nil
	last := publish(t, b.publisher, "e", "r", []byte("y")) // comes when the mesh knows of the answer
	b.proxy.Cut()
	same(t, b.first.next(t), last, 1, 0)
	b.first.answer <- nil
	if n := b.settled(); n[protocol.CountAcknowledged] != 2 {
		t.Errorf("counted %v", n)
	}
	b.first.none(t)
}

// A delivery that is lost on its way comes again, soon, to a worker that is
// there, with nothing spent.
func TestLostDelivery(t *testing.T) {
	t.Parallel()
	b := startBetween(t)
	b.proxy.Swallow(harness.FromMesh)
	id := publish(t, b.publisher, "e", "r", []byte("x"))
	harness.Await(t, "it is on its way", func() bool { return b.m.Queue("e", "r").InFlight == 1 })
	b.proxy.Cut()
	same(t, b.first.next(t), id, 1, 0)
	b.first.answer <- nil
	b.settled()
	b.first.none(t)
}

// A publisher that loses its connection before the answer does not know; what
// it publishes again under the same id is there once.
func TestCutPublisher(t *testing.T) {
	t.Parallel()
	const messages = 100
	b := startBetween(t)
	c := harness.Connect(t, b.proxy.URL())
	b.proxy.Swallow(harness.FromMesh)
	unknown := make([]client.Message, messages)
	for i := range unknown {
		unknown[i] = client.Message{To: client.Queue("twice", "r"), Data: []byte(strconv.Itoa(i)), DedupID: strconv.Itoa(i)}
	}
	results := make(chan []client.Result, 1)
	go func() {
		r, _ := c.PublishMany(t.Context(), unknown)
		results <- r
	}()
	harness.Await(t, "all are stored", func() bool { return b.m.Queue("twice", "r").Ready == messages })
	b.proxy.Cut()
	for i, r := range harness.Receive(t, "the publishes' end", results) {
		if code := protocol.CodeOf(r.Err); code != protocol.CodeUnavailable && code != protocol.CodeTimeout {
			t.Errorf("publish %d: %v", i, r.Err)
		}
	}
	again, err := c.PublishMany(t.Context(), unknown)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range again {
		if !r.Receipt.Duplicate {
			t.Errorf("publish %d is stored twice", i)
		}
	}
	if q := b.m.Queue("twice", "r"); q.Ready != messages {
		t.Errorf("stored: %+v", q)
	}
	harness.Await(t, "the mesh has counted them", func() bool {
		return b.m.Queue("twice", "r").Counters[protocol.CountDeduplicated] == messages
	})
}
