package books

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// leftOut are the subscriptions that a topic's message did not reach because of
// their filters. Nothing was recorded of them when it was published: they are
// asked anew, those that have been registered, as they are, since before that. If
// the registry cannot be asked there are none.
func leftOut(ctx context.Context, conn *nats.Conn, found []*ledger.Trail) []protocol.LeftOut {
	reached, topic := map[string]bool{}, ""
	for _, t := range found {
		reached[t.Meta.Queue] = true
		if name, ok := scope.SubscriberOf(t.Meta.Queue); ok {
			topic = name.Topic
		}
	}
	if topic == "" {
		return nil
	}
	message := found[0].Message
	var document filter.Document
	payload := document.Input(message.Body)
	var out []protocol.LeftOut
	wanted := map[string]bool{} // queues that one of their consumers wants it in
	for offset := 0; ; {
		page, err := mesh.Request[protocol.SubscriptionsPage](ctx, conn, protocol.SubjectSubscription, protocol.SubscriptionsRequest{Topic: topic, Offset: offset})
		if err != nil {
			return nil
		}
		for i := range page.Subscriptions {
			s := &page.Subscriptions[i]
			f, err := filter.Compile(s.Filters)
			switch {
			case s.Topic != topic: // a registry of an earlier version lists all
			case reached[s.Queue] || s.Since.UnixNano() > message.PublishedAt:
			case len(s.Filters) == 0, err != nil, f.Match(payload):
				wanted[s.Queue] = true
			default:
				out = append(out, protocol.LeftOut{Queue: s.Queue, Subscription: s.ID, Worker: s.WorkerName, WorkerID: s.Worker, Filters: s.Filters})
			}
		}
		if offset += len(page.Subscriptions); !page.More || len(page.Subscriptions) == 0 {
			return without(out, wanted)
		}
	}
}

// without is what is of no wanted queue.
func without(all []protocol.LeftOut, wanted map[string]bool) []protocol.LeftOut {
	kept := all[:0]
	for i := range all {
		if !wanted[all[i].Queue] {
			kept = append(kept, all[i])
		}
	}
	return kept
}
