package sdk_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestAMessageCanBeScheduled(t *testing.T) {
	s := startStandIn(t)
	asked := make(chan *nats.Msg, 1)
	s.answering(func(m *nats.Msg) {
		asked <- m
		s.respond(m, protocol.PublishAck{MessageID: "id"})
	})
	c := s.connect()
	for _, x := range []struct {
		opt         client.PublishOption
		name, value string
	}{
		{client.Delay(1500 * time.Millisecond), "Waybill-Delay-Ms", "1500"},
		{client.Delay(time.Millisecond + 1), "Waybill-Delay-Ms", "2"}, // never early
		{client.DeliverAt(time.Date(2031, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))), "Waybill-Deliver-At", "2031-01-02T02:04:05.000000006Z"},
		{client.Delay(0), "Waybill-Delay-Ms", ""},
		{client.DeliverAt(time.Time{}), "Waybill-Deliver-At", ""},
	} {
		if _, err := c.Publish(t.Context(), queue, nil, x.opt); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, asked).Header.Get(x.name); got != x.value {
			t.Errorf("%s is %q, want %q", x.name, got, x.value)
		}
	}
	for _, opts := range [][]client.PublishOption{
		{client.Delay(-1)}, {client.Delay(protocol.MaxSchedule + 1)}, {client.DeliverAt(time.Now().Add(protocol.MaxSchedule + time.Hour))},
		{client.Delay(time.Second), client.DeliverAt(time.Now().Add(time.Second))},
	} {
		_, err := c.Publish(t.Context(), queue, nil, opts...)
		wantCode(t, err, protocol.CodeInvalidArgs)
	}
}
