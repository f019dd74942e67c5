package chaos_test

import (
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

// A router that stood still until another had its lanes delivers nothing of
// what it knew: not even to a worker that does not look at epochs.
func TestARouterThatStoodStillDeliversNothing(t *testing.T) {
	m := harness.StartSeparate(t, map[string]int{"router": 2})
	c := m.Connect()
	w := newPlainWorker(t, m.URL)
	const each = 3
	for lane := range lanes {
		for range each {
			publishUntilStored(t, c, client.Queue("stale", routeIn(lane)), nil)
		}
	}
	var held []*nats.Msg
	for range lanes {
		held = append(held, harness.Receive(t, "a delivery of each lane", w.deliveries))
	}
	still := m.Instance("router-1")
	still.Pause()
	for _, d := range held { // the one that stands still will read those of its lanes, and have room for more
		w.acknowledge(d)
	}
	for lane := range lanes {
		publishUntilStored(t, c, client.Queue("probe", routeIn(lane)), nil)
	}
	for len(w.handled) < lanes*each {
		w.acknowledge(harness.Receive(t, "the deliveries of the other", w.deliveries))
	}
	still.Resume()
	m.AwaitReady()
	if err := w.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for len(w.deliveries) > 0 {
		w.acknowledge(<-w.deliveries)
	}
	if w.former > 0 {
		t.Errorf("%d deliveries came from a former owner of their lane", w.former)
	}
}

// plainWorker is a worker that does the least that is asked of one: it takes a
// queue of each lane, one message at a time.
type plainWorker struct {
	t          *testing.T
	nc         *nats.Conn
	id         string
	deliveries chan *nats.Msg

	newest  map[string]string // epoch, by lane
	handled map[string]bool   // message ids
	former  int               // deliveries of an older epoch than the newest seen
}

func newPlainWorker(t *testing.T, url string) *plainWorker {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := &plainWorker{
		t: t, nc: nc, id: nuid.Next(), deliveries: make(chan *nats.Msg, 1000),
		newest: map[string]string{}, handled: map[string]bool{},
	}
	w.answer(protocol.VerbProbe, nil)
	w.answer(protocol.VerbClaims, []byte("{}"))
	hello := protocol.Hello{WorkerID: w.id, Name: "plain", Revision: 1}
	one := 1
	for lane := range lanes {
		hello.Subscriptions = append(hello.Subscriptions, protocol.SubscriptionSpec{
			Ref: strconv.Itoa(lane), Execution: "stale", Route: routeIn(lane), Concurrency: &one,
		})
	}
	r, err := mesh.Request[protocol.Registered](t.Context(), nc, protocol.SubjectHello, hello)
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range r.Subscriptions {
		if _, err := nc.ChanSubscribe(sub.Deliver, w.deliveries); err != nil {
			t.Fatal(err)
		}
	}
	w.keepAlive(time.Duration(r.KeepaliveMs) * time.Millisecond)
	return w
}

func (w *plainWorker) answer(verb string, with []byte) {
	w.t.Helper()
	_, err := w.nc.Subscribe(protocol.WorkerSubject(w.id, verb), func(m *nats.Msg) {
		if err := m.Respond(with); err != nil {
			w.t.Error(err)
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *plainWorker) keepAlive(every time.Duration) {
	w.t.Helper()
	body, err := json.Marshal(protocol.Keepalive{Revision: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	stop := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			if err := w.nc.Publish(protocol.SubjectKeepalive+w.id, body); err != nil {
				w.t.Error(err)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	w.t.Cleanup(func() { close(stop); beating.Wait() })
}

// acknowledge ends a delivery, and notes whose it is.
func (w *plainWorker) acknowledge(d *nats.Msg) {
	w.t.Helper()
	lane, _, _ := protocol.SplitOutcome(d.Reply)
	epoch := d.Header.Get(protocol.HeaderEpoch)
	switch newest := w.newest[lane]; {
	case len(epoch) > len(newest), len(epoch) == len(newest) && epoch > newest:
		w.newest[lane] = epoch
	case epoch != newest:
		w.former++
	}
	w.handled[d.Header.Get(protocol.HeaderMessageID)] = true
	if err := d.Respond(nil); err != nil {
		w.t.Fatal(err)
	}
}
