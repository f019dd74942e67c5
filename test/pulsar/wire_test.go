package pulsar_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker/brokertest/live"
	"github.com/waybill-mq/waybill/test/harness"
)

// TestOnTheWire looks at what is said between a mesh and its broker, and what becomes of
// messages when that is cut short.
func TestOnTheWire(t *testing.T) {
	t.Parallel()
	server := live.SharedPulsar(t)
	tap := newTap(t, server)
	p := through(t, tap.url(), server, delayMs)
	p.copyUnconfirmed(tap)
	p.reissued(tap)
	p.connectionCut(tap)
	if ids := tap.stale(); len(ids) > 0 {
		t.Errorf("the broker should not have been told to settle %v", ids)
	}
}

// copyUnconfirmed: while the broker's receipt of a retry's copy does not come, the
// original stays with the broker. It is handled once more in the end.
func (p *place) copyUnconfirmed(tap *wiretap) {
	held, settled := make(chan bool, 100), make(chan string, 100)
	type message struct{ producer, sequence uint64 }
	copies, originals := map[message]bool{}, map[string]bool{}
	tap.hold(func(s *said) bool {
		at := message{s.by, s.sequence}
		switch {
		case s.what == delivers && s.carries(protocol.HeaderAttempt, "1"):
			originals[s.messages[0]] = true
		case s.what == sends && s.carries(protocol.HeaderAttempt, "2"):
			copies[at] = true
		case s.what == settles && slices.ContainsFunc(s.messages, func(id string) bool { return originals[id] }):
			settled <- fmt.Sprint(s.messages)
		case s.what == receipt && copies[at]:
			held <- true
			return true
		}
		return false
	})
	handled := make(chan int, 100)
	harness.Work(p, p.client, "unconfirmed", "tasks", func(_ context.Context, d *client.Delivery) error {
		handled <- d.Attempt
		if d.Attempt == 1 {
			return errFails
		}
		return nil
	})
	p.publish(client.Queue("unconfirmed", "tasks"), "x")
	harness.Receive(p, "the first attempt", handled)
	harness.Receive(p, "the receipt of the copy", held)
	if n := p.backlog("queue:unconfirmed:tasks", "waybill"); n < 1 || len(settled) > 0 {
		p.Errorf("the original is gone: there are %d, %d were settled", n, len(settled))
	}
	tap.hold(nil)
	tap.cut()
	tap.mend()
	harness.Await(p, "the second attempt", func() bool { return harness.Receive(p, "an attempt", handled) == 2 })
	p.awaitRest("unconfirmed", "tasks", 0)
	harness.Await(p, "the queue to be empty", func() bool { return p.backlog("queue:unconfirmed:tasks", "waybill") == 0 })
}

// reissued: what the broker has handed out again, on a connection that lives, is not
// settled for who had it first; a copy of our own is not taken for that.
func (p *place) reissued(tap *wiretap) {
	const topic = "queue:reissued:tasks"
	deliveries, _ := p.work("reissued", "tasks", client.Concurrency(2))
	p.publish(client.Queue("reissued", "tasks"), "x")
	first := harness.Receive(p, "the message", deliveries)
	before := p.counted(protocol.CountSuperseded)
	tap.reissue(p.T, p.topic(topic))
	second := harness.Receive(p, "the message again", deliveries)
	if second.ID != first.ID || second.Attempt != 1 {
		p.Errorf("handed out again it is %s at attempt %d, was %s", second.ID, second.Attempt, first.ID)
	}
	first.End <- nil
	harness.Await(p, "the first answer to be superseded", func() bool { return p.counted(protocol.CountSuperseded) > before })
	if n := p.backlog(topic, "waybill"); n != 1 {
		p.Errorf("it was settled for who had it first: there are %d", n)
	}
	second.End <- errFails
	third := harness.Receive(p, "the copy", deliveries)
	if third.Attempt != 2 {
		p.Errorf("the copy is at attempt %d", third.Attempt)
	}
	third.End <- nil
	p.awaitRest("reissued", "tasks", 0)
	if n := p.mesh.Queue("reissued", "tasks").Counters; n[protocol.CountAcknowledged] != 1 || n[protocol.CountRetried] != 1 {
		p.Errorf("counted are %v", n)
	}
	harness.Await(p, "the queue to be empty", func() bool { return p.backlog(topic, "waybill") == 0 })
}

// connectionCut: what was delivered on a connection that is gone is not settled any
// more, under load neither: nothing stale is settled, and connections are made again
// once.
func (p *place) connectionCut(tap *wiretap) {
	const inHand, cuts = 100, 3
	deliveries, _ := p.work("cut", "tasks", client.Concurrency(inHand))
	for range inHand {
		p.publish(client.Queue("cut", "tasks"), "x")
	}
	made := 0
	for range cuts {
		var running []harness.Taken
		for range inHand {
			d := harness.Receive(p, "a handler to run", deliveries)
			if d.Attempt != 1 {
				p.Errorf("a message is at attempt %d that never failed", d.Attempt)
			}
			running = append(running, d)
		}
		made = max(made, tap.made())
		before := p.counted(protocol.CountSuperseded)
		tap.cut()
		harness.Await(p, "the mesh to miss them", func() bool { return p.mesh.Queue("cut", "tasks").InFlight == 0 })
		for _, d := range running {
			d.End <- nil
		}
		harness.Await(p, "the answers to be superseded", func() bool { return p.counted(protocol.CountSuperseded) >= before+inHand })
		tap.mend()
	}
	harness.AwaitWithin(p, 2*harness.Guard, "all to be handled", func() bool {
		for len(deliveries) > 0 {
			(<-deliveries).End <- nil
		}
		return p.mesh.Queue("cut", "tasks").Counters[protocol.CountAcknowledged] == inHand
	})
	p.awaitRest("cut", "tasks", 0)
	if again := tap.made(); again > 2*made {
		p.Errorf("%d connections were made in all, %d before the last of %d cuts", again, made, cuts)
	}
	if lost := p.counted(protocol.CountLost); lost != 0 {
		p.Errorf("%d are counted as lost", lost)
	}
}
