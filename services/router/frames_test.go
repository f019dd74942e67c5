package router_test

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
)

// framed is a program that takes frames. What it gets is put in p.got as if it
// had come alone.
func (f *fixture) framed(queue string, change func(*protocol.Subscription)) *program {
	f.Helper()
	p := f.program(queue, change)
	p.takeFrames(protocol.DeliverSubject("local", p.record.ID+"."+protocol.DeliverFrames))
	return p
}

func (p *program) takeFrames(subject string) {
	p.f.Helper()
	p.subscribe(subject, p.unpack)
	p.f.must(p.nc.Flush())
	p.record.Frames = subject
	p.f.tell(p.record)
}

func (p *program) unpack(m *nats.Msg) {
	lane, _, _ := protocol.SplitOutcome(m.Reply)
	epoch, all := frame.Deliveries(m.Data)
	for d, err := range all {
		if err != nil || epoch == 0 || d.Subscription != p.record.Subscriptions[0].ID {
			p.f.Errorf("a frame of epoch %d for %s: %v", epoch, d.Subscription, err)
			return
		}
		p.got <- &nats.Msg{
			Subject: m.Subject, Reply: protocol.SubjectOutcome + lane + "." + string(d.Token), Data: d.Body,
			Header: nats.Header{protocol.HeaderAttempt: {strconv.FormatUint(uint64(d.Attempt), 10)}, protocol.HeaderMessageID: {d.ID.String()}},
		}
	}
}

// endAll sends outcomes in one frame; all are of one lane.
func (p *program) endAll(outcomes map[*nats.Msg]protocol.Outcome) {
	p.f.Helper()
	var b []byte
	var lane string
	for m, o := range outcomes {
		var token string
		lane, token, _ = protocol.SplitOutcome(m.Reply)
		b = frame.AppendOutcome(b, &frame.Outcome{Token: token, Outcome: o, Text: "why"})
	}
	p.f.must(p.nc.Publish(protocol.SubjectOutcome+lane+"."+protocol.OutcomeFrame, b))
}

func TestFramesOfDeliveriesAndOutcomes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	for range 4 {
		f.published("r")
	}
	p := f.framed(queueOf("r"), nil)
	a, b, c, d := p.next(), p.next(), p.next(), p.next()
	p.endAll(map[*nats.Msg]protocol.Outcome{
		a: protocol.Acknowledged, b: protocol.Failed, c: protocol.Rejected, d: protocol.Cancelled,
	})
	again := p.next() // what was handed back; what failed is elsewhere
	if again.Header.Get(protocol.HeaderMessageID) != d.Header.Get(protocol.HeaderMessageID) || again.Header.Get(protocol.HeaderAttempt) != "1" {
		t.Errorf("%v came again, not %v", again.Header, d.Header)
	}
	p.endAll(map[*nats.Msg]protocol.Outcome{again: protocol.Acknowledged, a: protocol.Failed})
	q := f.empty("r")
	for counter, want := range map[string]uint64{
		protocol.CountAcknowledged: 2, protocol.CountFailed: 1, protocol.CountRejected: 1, protocol.CountDelivered: 5,
	} {
		if q.Counters[counter] != want {
			t.Errorf("%s is %d, want %d", counter, q.Counters[counter], want)
		}
	}
}

// A frame that nobody takes is not lost: all of it comes when somebody does.
func TestFrameThatNobodyTakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	for range 5 {
		f.published("r")
	}
	p := f.program(queueOf("r"), func(s *protocol.Subscription) { s.Concurrency = 0 })
	f.await("the worker to be known", func() bool { return f.queue("r").Consumers == 1 })
	p.record.Frames = protocol.DeliverSubject("local", p.record.ID+"."+protocol.DeliverFrames)
	p.record.Subscriptions[0].Concurrency = 5
	p.claiming(nil) // so that what was sent is not asked for
	f.tell(p.record)
	f.await("what was sent to come back", func() bool { return f.queue("r").InFlight == 0 })
	p.takeFrames(p.record.Frames)
	for range 5 {
		p.end(p.next(), protocol.Acknowledged)
	}
	q := f.empty("r")
	if q.Counters[protocol.CountAcknowledged] != 5 || q.Counters[protocol.CountVanished] != 0 {
		t.Errorf("counted %v", q.Counters)
	}
}

// A worker says for a single delivery of a frame what NATS would say for one
// that nobody took: the others stay with it.
func TestOneOfAFrameIsNotTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.published("r")
	f.published("r")
	p := f.framed(queueOf("r"), nil)
	a, b := p.next(), p.next()
	f.must(p.nc.PublishMsg(&nats.Msg{Subject: a.Reply, Header: nats.Header{protocol.HeaderStatus: {protocol.StatusNoResponders}}}))
	again := p.next()
	if again.Reply != a.Reply {
		t.Errorf("%s came again, not %s", again.Reply, a.Reply)
	}
	p.end(again, protocol.Acknowledged)
	p.end(b, protocol.Acknowledged)
	if q := f.empty("r"); q.Counters[protocol.CountDelivered] != 2 {
		t.Errorf("counted %v", q.Counters)
	}
}

func TestMalformedOutcomesChangeNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.published("r")
	p := f.framed(queueOf("r"), nil)
	m := p.next()
	lane, token, _ := protocol.SplitOutcome(m.Reply)
	for _, b := range [][]byte{nil, {}, {9}, []byte("junk"), append(frame.AppendOutcome(nil, &frame.Outcome{Token: token + "x"}), 0xff)} {
		f.must(p.nc.Publish(protocol.SubjectOutcome+lane+"."+protocol.OutcomeFrame, b))
	}
	p.end(m, protocol.Acknowledged)
	if q := f.empty("r"); q.Counters[protocol.CountAcknowledged] != 1 || q.Counters[protocol.CountDelivered] != 1 {
		t.Errorf("counted %v", q.Counters)
	}
}
