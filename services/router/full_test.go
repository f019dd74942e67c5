package router_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// While the log has no room, publishers are told so; what was in the router's
// hands by then is stored and answered when there is room again.
func TestNoRoomIsSaid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.router("a", nil)
	f.published("r")
	js, err := jetstream.New(f.nc)
	f.must(err)
	room := func(bytes int64) {
		stream, err := js.Stream(f.guarded(), ledger.StreamOf("router"))
		f.must(err)
		config := stream.CachedInfo().Config
		config.MaxBytes, config.Discard = bytes, jetstream.DiscardNew
		_, err = js.UpdateStream(f.guarded(), config)
		f.must(err)
	}
	room(1)
	inbox, answers := f.nc.NewInbox(), make(chan *nats.Msg, 100000)
	_, err = f.nc.ChanSubscribe(inbox, answers)
	f.must(err)
	asked, stored, refused := 0, 0, 0
	look := func() {
		for len(answers) > 0 {
			m := <-answers
			if e := protocol.ParseErrorBody(m.Data); e != nil {
				if e.Code != protocol.CodeUnavailable {
					t.Fatalf("refused with %v, want UNAVAILABLE", e)
				}
				refused++
				continue
			}
			var ack protocol.PublishAck
			f.must(json.Unmarshal(m.Data, &ack))
			stored++
		}
	}
	f.await("a refusal", func() bool {
		asked++
		f.must(f.nc.PublishRequest(protocol.PublishQueueSubject("e1", "r"), inbox, []byte("x")))
		look()
		return refused > 0
	})
	if stored > 0 {
		t.Errorf("%d publishes were answered without room for them", stored)
	}
	room(-1)
	f.await("every answer", func() bool { look(); return stored+refused == asked })
	f.published("r")
	if q := f.queue("r"); q.Ready != int64(stored)+2 {
		t.Errorf("%d are ready, want the %d that were answered, and 2", q.Ready, stored)
	}
}
