package artemis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// frames looks at what is said between a mesh and its broker.
func frames(t *testing.T, server *live.Artemis) {
	tap := newTap(t, server)
	p := on(t, server, tap.url())
	for name, test := range map[string]func(*place, *wiretap){
		"OfOutcomes": (*place).framesOfOutcomes, "Reissued": (*place).reissued,
		"CopyUnconfirmed": (*place).copyUnconfirmed, "CopyUnwritten": (*place).copyUnwritten, "PublishUnconfirmed": (*place).publishUnconfirmed,
	} {
		t.Run(name, func(t *testing.T) {
			test(&place{T: t, mesh: p.mesh.For(t), server: server, client: p.client}, tap)
		})
	}
	if ids := tap.stale(); len(ids) > 0 {
		t.Errorf("the broker should not have been sent: %v", ids)
	}
	p.noErrors()
}

// framesOfOutcomes: whatever a handler answers, nothing is refused or rolled back
// over STOMP, a copy is confirmed before its original is acknowledged, and times
// are told with their zone.
func (p *place) framesOfOutcomes(tap *wiretap) {
	p.handle("frames", "tasks", func(_ context.Context, d *client.Delivery) error {
		switch {
		case string(d.Data) == "rejected":
			return client.Reject(errFails)
		case string(d.Data) == "failed" && d.Attempt < 3:
			return errFails
		}
		return nil
	}, client.Backoff(50*time.Millisecond))
	for _, data := range []string{"acknowledged", "rejected", "failed"} {
		p.publish(client.Queue("frames", "tasks"), data)
	}
	p.awaitRest("frames", "tasks", 1)
	for _, f := range tap.frames(frame.NACK, frame.BEGIN, frame.COMMIT, frame.ABORT, frame.ERROR) {
		p.Errorf("there is a frame %s %v", f.Command, f.Header)
	}
	for _, f := range tap.frames(frame.SEND) {
		if to := f.Header.Get(frame.Destination); strings.Contains(to, "frames") && (f.Header.Get(frame.Receipt) == "" || f.Header.Get("persistent") != "true") {
			p.Errorf("sent to %s without a receipt, or not to be kept: %v", to, f.Header)
		}
	}
	subscribed := 0
	for _, f := range tap.frames(frame.SUBSCRIBE) {
		if strings.Contains(f.Header.Get(frame.Destination), "frames") {
			subscribed++
			p.timestamps(f)
		}
	}
	if subscribed == 0 {
		p.Error("nobody subscribed to the queue")
	}
}

// timestamps: each that a frame has is one of RFC 3339, and there is one.
func (p *place) timestamps(f *frame.Frame) {
	p.Helper()
	found := 0
	for i := range f.Header.Len() {
		name, value := f.Header.GetAt(i)
		if !strings.Contains(name, "timestamp") {
			continue
		}
		found++
		if _, err := time.Parse(time.RFC3339, value); err != nil {
			p.Errorf("%s has %s: %v", f.Command, name, err)
		}
	}
	if found == 0 {
		p.Errorf("there is no timestamp in %v", f.Header)
	}
}

// copyUnconfirmed: while the broker's receipt of a retry's copy does not come, the
// original stays with the broker. It is not handled again when the connection is lost
// meanwhile, since what its handler said is known.
func (p *place) copyUnconfirmed(tap *wiretap) { p.copyInterrupted(tap, "unconfirmed", frame.RECEIPT) }

// copyUnwritten: nor is it if the broker has not even got the copy.
func (p *place) copyUnwritten(tap *wiretap) { p.copyInterrupted(tap, "unwritten", frame.SEND) }

// copyInterrupted has the copy, or its receipt, not get through, and cuts the
// connections.
func (p *place) copyInterrupted(tap *wiretap, execution, lost string) {
	const backoff = time.Second
	stopped := tap.stop(lost, func(f *frame.Frame) bool { return f.Header.Get(protocol.HeaderAttempt) == "2" })
	deliveries, _ := p.work(execution, "tasks", client.Backoff(backoff))
	p.publish(client.Queue(execution, "tasks"), "x")
	first := harness.Receive(p, "the first attempt", deliveries)
	failed := time.Now()
	first.End <- errFails
	harness.Receive(p, "the copy to be interrupted", stopped)
	if q := p.server.Queues(p)[execution+"/tasks"]; q.Delivering != 1 {
		p.Errorf("the original was let go: %+v", q)
	}
	tap.cut()
	tap.mend()
	second := harness.Receive(p, "the second attempt", deliveries)
	if waited := time.Since(failed); second.Attempt != 2 || waited < backoff {
		p.Errorf("attempt %d comes after %v", second.Attempt, waited)
	}
	second.End <- nil
	p.awaitRest(execution, "tasks", 0)
	harness.Await(p, "the queue to be empty", func() bool { return p.server.Depth(p, execution+"/tasks") == 0 })
	if q := p.mesh.Queue(execution, "tasks"); q.Counters[protocol.CountDelivered] != 2 || q.Counters[protocol.CountRetried] != 1 {
		p.Errorf("counted are %v", q.Counters)
	}
}

// publishUnconfirmed: what was stored and not confirmed, since the connection was lost,
// and is published again with its id, is one message.
func (p *place) publishUnconfirmed(tap *wiretap) {
	stopped := tap.stop(frame.RECEIPT, func(f *frame.Frame) bool { return string(f.Body) == "in doubt" })
	publish := func() error {
		_, err := p.client.Publish(p.Context(), client.Queue("doubt", "tasks"), []byte("in doubt"), client.DedupID("once"))
		return err
	}
	said := make(chan error, 1)
	go func() { said <- publish() }()
	harness.Receive(p, "the receipt to be lost", stopped)
	tap.cut()
	tap.mend()
	if harness.Receive(p, "an answer", said) != nil { // else the client has published it again itself
		harness.Await(p, "it to be published again", func() bool { return publish() == nil })
	}
	harness.Await(p, "both to be there", func() bool { return p.server.Depth(p, "doubt/tasks") == 2 })
	deliveries, _ := p.work("doubt", "tasks")
	harness.Receive(p, "the message", deliveries).End <- nil
	p.awaitRest("doubt", "tasks", 0)
	harness.Await(p, "the queue to be empty", func() bool { return p.server.Depth(p, "doubt/tasks") == 0 })
	if q := p.mesh.Queue("doubt", "tasks"); q.Counters[protocol.CountDelivered] != 1 || q.Counters[protocol.CountPublished] != 1 {
		p.Errorf("counted are %v", q.Counters)
	}
}

// connectionCut: what was delivered on a connection that is gone is not
// settled any more, under load neither: nothing stale is acknowledged, so the
// broker has nothing to complain of, and connections are made again once.
func connectionCut(t *testing.T, server *live.Artemis) {
	const inHand, cuts = 100, 3
	tap := newTap(t, server)
	p := on(t, server, tap.url())
	deliveries, _ := p.work("cut", "tasks", client.Concurrency(inHand))
	for range inHand {
		p.publish(client.Queue("cut", "tasks"), "x")
	}
	made := 0
	for range cuts {
		running := p.take(deliveries, inHand)
		made = max(made, tap.made())
		before := p.counted(protocol.CountSuperseded)
		tap.cut()
		harness.Await(t, "the broker to be missed", func() bool { return !p.mesh.Ready() })
		for _, d := range running {
			d.End <- nil
		}
		harness.Await(t, "the answers to be superseded", func() bool { return p.counted(protocol.CountSuperseded) >= before+inHand })
		tap.mend()
	}
	harness.AwaitWithin(t, 2*harness.Guard, "all to be handled", func() bool {
		for len(deliveries) > 0 {
			(<-deliveries).End <- nil
		}
		return p.mesh.Queue("cut", "tasks").Counters[protocol.CountAcknowledged] == inHand
	})
	p.awaitRest("cut", "tasks", 0)
	if again := tap.made(); again > 2*made {
		t.Errorf("%d connections were made in all, %d before the last of %d cuts", again, made, cuts)
	}
	if lost := p.counted(protocol.CountLost); lost != 0 {
		t.Errorf("%d are counted as lost", lost)
	}
	if ids := tap.stale(); len(ids) > 0 {
		t.Errorf("the broker should not have been sent: %v", ids)
	}
	p.noErrors()
}

// take takes so many deliveries, each at its first attempt.
func (p *place) take(deliveries <-chan harness.Taken, n int) (taken []harness.Taken) {
	p.Helper()
	for range n {
		d := harness.Receive(p, "a handler to run", deliveries)
		if d.Attempt != 1 {
			p.Errorf("a message is at attempt %d that never failed", d.Attempt)
		}
		taken = append(taken, d)
	}
	return taken
}
