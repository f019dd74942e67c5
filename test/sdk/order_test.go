package sdk_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestAMessageHasAGroupAndAPriority(t *testing.T) {
	s := startStandIn(t)
	asked := make(chan *nats.Msg, 1)
	s.answering(func(m *nats.Msg) {
		asked <- m
		s.respond(m, protocol.PublishAck{MessageID: "id"})
	})
	c := s.connect()
	if _, err := c.Publish(t.Context(), queue, nil, client.InGroup("account 17"), client.Priority(7)); err != nil {
		t.Fatal(err)
	}
	m := receive(t, asked)
	if group, priority := m.Header.Get("Waybill-Group"), m.Header.Get("Waybill-Priority"); group != "account 17" || priority != "7" {
		t.Errorf("published group %q, priority %q", group, priority)
	}
	if _, err := c.Publish(t.Context(), queue, nil, client.InGroup(""), client.Priority(0)); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, asked); len(m.Header["Waybill-Group"])+len(m.Header["Waybill-Priority"]) > 0 {
		t.Errorf("published %v", m.Header)
	}
	_, err := c.Publish(t.Context(), queue, nil, client.InGroup(strings.Repeat("g", protocol.MaxGroup+1)))
	wantCode(t, err, protocol.CodeInvalidArgs)
}

func TestASubscriptionSaysItsOrder(t *testing.T) {
	s := startStandIn(t)
	s.work(s.connect(), func(context.Context, *client.Delivery) error { return nil },
		client.FIFO(), client.OnDeadLetter(protocol.DeadLetterBlock), client.MaxPriority(9))
	h := receive(t, s.hellos)
	if sub := h.Subscriptions[0]; sub.Type != protocol.TypeFIFO || sub.OnDeadLetter != protocol.DeadLetterBlock || sub.MaxPriority != 9 {
		t.Errorf("declared %+v", sub)
	}
}

// The mesh waits for an ordered delivery to have ended: one that never began
// says so.
func TestAnOrderedDeliveryThatIsOverdueIsHandedBack(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	begun, release := make(chan struct{}, 1), make(chan struct{})
	w := s.work(s.connect(), func(context.Context, *client.Delivery) error {
		begun <- struct{}{}
		<-release
		return nil
	}, client.FIFO(), client.Concurrency(1))
	s.deliver(w, delivery{lane: "lane", token: "a", data: "a"})
	receive(t, begun)
	s.deliver(w, delivery{lane: "lane", token: "b", data: "b", timeout: time.Millisecond})
	s.flush()
	probe(t, s) // it has arrived
	passes(2 * time.Millisecond)
	close(release)
	wantOutcome(t, receive(t, told), "a", protocol.Acknowledged)
	wantOutcome(t, receive(t, told), "b", protocol.Cancelled)
}

// An ordered handler that ignores the end of its context is not handed back
// while it runs: another of its group would run beside it.
func TestAnOrderedHandlerThatRunsOnKeepsItsMessage(t *testing.T) {
	s := startStandIn(t)
	told := s.outcomes("lane")
	begun, stuck := make(chan struct{}, 1), make(chan struct{})
	c := s.connect(client.DrainWindow(10 * time.Millisecond))
	w := s.work(c, func(context.Context, *client.Delivery) error {
		begun <- struct{}{}
		<-stuck
		return nil
	}, client.FIFO())
	s.deliver(w, delivery{lane: "lane", token: "a", data: "a"})
	receive(t, begun)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	wantCode(t, w.Stop(ctx), protocol.CodeTimeout)
	s.nothing(told)
	close(stuck)
	wantOutcome(t, receive(t, told), "a", protocol.Acknowledged)
}
