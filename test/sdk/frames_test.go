package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/protocol/frame"
)

// framesOf is a subject of the stand-in's for a worker that takes frames.
func framesOf(worker, last string) string { return protocol.DeliverSubject("local", worker+"."+last) }

func startFramingStandIn(t testing.TB) *standIn {
	s := startStandIn(t)
	s.frames = true
	return s
}

// deliverFrame sends deliveries of one lane in a frame; its epoch is the first's.
func (s *standIn) deliverFrame(worker, subscription string, all ...delivery) {
	s.t.Helper()
	b := frame.BeginDeliveries(nil, max(all[0].epoch, 1))
	for _, d := range all {
		headers := map[string][]string{}
		for k, v := range d.headers {
			headers[k] = []string{v}
		}
		b = frame.AppendDelivery(b, &frame.Delivery{
			Subscription: subscription, Token: []byte(d.token), ID: protocol.MessageID{1}, Attempt: uint32(max(d.attempt, 1)),
			Generation: 2, MaxRetries: 3, TimeoutMs: d.timeout.Milliseconds(), Priority: 4, Group: "g", Headers: headers, Body: []byte(d.data),
		})
	}
	m := &nats.Msg{Subject: framesOf(worker, protocol.DeliverFrames), Reply: protocol.SubjectOutcome + all[0].lane + ".whole", Data: b}
	if err := s.nc.PublishMsg(m); err != nil {
		s.t.Fatal(err)
	}
}

// framedOutcomes are the next frames' outcomes, until there are so many.
func framedOutcomes(t *testing.T, told <-chan *nats.Msg, n int) map[string]frame.Outcome {
	t.Helper()
	got := map[string]frame.Outcome{}
	for len(got) < n {
		m := receive(t, told)
		if _, token, _ := protocol.SplitOutcome(m.Subject); token != protocol.OutcomeFrame {
			t.Fatalf("%s is no frame", m.Subject)
		}
		for o, err := range frame.Outcomes(m.Data) {
			if err != nil {
				t.Fatal(err)
			}
			got[o.Token] = o // told again if its delivery comes again, or its connection was lost
		}
	}
	return got
}

func TestDeliveriesAndOutcomesInFrames(t *testing.T) {
	s := startFramingStandIn(t)
	told := s.outcomes("lane")
	seen := make(chan *client.Delivery, 8)
	w := s.work(s.connect(), func(_ context.Context, d *client.Delivery) error {
		seen <- d
		switch string(d.Data) {
		case "fail":
			return errors.New("no disk")
		case "reject":
			return client.Reject(errors.New("no Go"))
		default:
			return nil
		}
	})
	worker := receive(t, s.hellos).WorkerID
	s.deliverFrame(worker, w.ID(),
		delivery{lane: "lane", token: "a", data: "ok", attempt: 2, timeout: time.Minute, headers: map[string]string{"x": "y"}},
		delivery{lane: "lane", token: "b", data: "fail"},
		delivery{lane: "lane", token: "c", data: "reject"},
		delivery{lane: "lane", token: "a", data: "ok"}) // again
	got := framedOutcomes(t, told, 3)
	for token, want := range map[string]frame.Outcome{
		"a": {Token: "a", Outcome: protocol.Acknowledged},
		"b": {Token: "b", Outcome: protocol.Failed, Text: "no disk"},
		"c": {Token: "c", Outcome: protocol.Rejected, Text: "no Go"},
	} {
		if got[token] != want {
			t.Errorf("%+v, want %+v", got[token], want)
		}
	}
	for range 3 {
		d := receive(t, seen)
		if string(d.Data) != "ok" {
			continue
		}
		if d.ID != (protocol.MessageID{1}).String() || d.Execution != "run" || d.Route != "step" || d.Attempt != 2 || d.MaxRetries != 3 ||
			d.Generation != 2 || d.Group != "g" || d.Priority != 4 || d.Header("x") != "y" || len(d.Headers()) != 1 {
			t.Errorf("the delivery is %+v, with %v", d, d.Headers())
		}
	}
}

// One subscription takes the deliveries of all routes, also those sent alone.
func TestADeliveryAloneBesideFrames(t *testing.T) {
	s := startFramingStandIn(t)
	told := s.outcomes("lane")
	w := s.work(s.connect(), func(context.Context, *client.Delivery) error { return nil })
	worker := receive(t, s.hellos).WorkerID
	m := nats.NewMsg(framesOf(worker, w.ID()))
	m.Reply = protocol.SubjectOutcome + "lane.alone"
	if err := s.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, receive(t, told), "alone", protocol.Acknowledged)
}

// An owner of an earlier version takes no frames: once it is known, its lane is
// told one by one again, of earlier deliveries too.
func TestAnOwnerWithoutFramesIsToldOneByOne(t *testing.T) {
	s := startFramingStandIn(t)
	told := s.outcomes("lane")
	begun, end := make(chan struct{}, 2), make(chan struct{})
	w := s.work(s.connect(), func(context.Context, *client.Delivery) error {
		begun <- struct{}{}
		<-end
		return nil
	})
	worker := receive(t, s.hellos).WorkerID
	s.deliverFrame(worker, w.ID(), delivery{lane: "lane", token: "a", epoch: 3})
	receive(t, begun)
	q, err := json.Marshal(protocol.ClaimsRequest{Lane: "lane", Epoch: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.nc.Request(protocol.WorkerSubject(worker, protocol.VerbClaims), q, guard); err != nil {
		t.Fatal(err)
	}
	s.deliverFrame(worker, w.ID(), delivery{lane: "lane", token: "b", epoch: 3}) // of the former owner
	close(end)
	wantOutcome(t, receive(t, told), "a", protocol.Acknowledged)
	s.deliverFrame(worker, w.ID(), delivery{lane: "lane", token: "c", epoch: 5})
	receive(t, begun)
	if got := framedOutcomes(t, told, 1); got["c"].Outcome != protocol.Acknowledged {
		t.Errorf("the later owner was told %v", got)
	}
}

// A delivery to a subscription that the worker does not know (yet) comes again,
// as if nobody had been there.
func TestADeliveryToNobodyIsSaidToBeOne(t *testing.T) {
	s := startFramingStandIn(t)
	told := s.outcomes("lane")
	s.work(s.connect(), func(context.Context, *client.Delivery) error { return nil })
	worker := receive(t, s.hellos).WorkerID
	s.deliverFrame(worker, "another", delivery{lane: "lane", token: "a"})
	m := receive(t, told)
	if _, token, _ := protocol.SplitOutcome(m.Subject); token != "a" || m.Header.Get(protocol.HeaderStatus) != protocol.StatusNoResponders {
		t.Errorf("%s %v", m.Subject, m.Header)
	}
}

func TestOutcomesInFramesOfALostConnectionAreToldAgain(t *testing.T) {
	s := startFramingStandIn(t)
	told := s.outcomes("lane")
	begun, end := make(chan struct{}, 1), make(chan struct{})
	w := s.work(s.connect(), func(context.Context, *client.Delivery) error {
		begun <- struct{}{}
		<-end
		return nil
	})
	worker := receive(t, s.hellos).WorkerID
	s.deliverFrame(worker, w.ID(), delivery{lane: "lane", token: "a"})
	receive(t, begun)
	s.cut()
	close(end)
	if got := framedOutcomes(t, told, 1); got["a"].Outcome != protocol.Acknowledged {
		t.Errorf("told %v", got)
	}
}
