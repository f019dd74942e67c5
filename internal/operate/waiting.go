package operate

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Waiting are messages that wait, those of a source in order of their due times,
// at most limit; 0 is all.
func Waiting(ctx context.Context, nc *nats.Conn, sources []Source, execution string, limit int) (protocol.WaitingPage, error) {
	all := protocol.WaitingPage{Messages: []protocol.WaitingMessage{}}
	for _, source := range orAll(sources) {
		ask := protocol.WaitingListRequest{Queue: source.Queue, Topic: source.Topic, Execution: execution}
		if err := addWaiting(ctx, nc, ask, limit, &all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// addWaiting adds what waits of one source, page by page. Of one that has no part
// in what is asked for it takes the number alone.
func addWaiting(ctx context.Context, nc *nats.Conn, ask protocol.WaitingListRequest, limit int, all *protocol.WaitingPage) error {
	passed := all.Total
	for {
		room := room(limit, len(all.Messages))
		ask.Limit = max(room, 1)
		page, err := mesh.Request[protocol.WaitingPage](ctx, nc, protocol.SubjectWaitingList, ask)
		if err != nil {
			return err
		}
		all.Total, all.Away = passed+page.Total, alsoAway(all.Away, page.Away)
		if room == 0 {
			return nil
		}
		all.Messages = append(all.Messages, page.Messages...)
		ask.After = page.Next
		if page.Next == "" {
			return nil
		}
	}
}

// ActOnWaiting releases or cancels, as the subject says, what q and the sources
// name, as ActOnLetters does.
func ActOnWaiting(ctx context.Context, nc *nats.Conn, subject string, sources []Source, q protocol.WaitingActRequest) (sum protocol.WaitingActReply, err error) {
	for _, source := range orAll(sources) {
		q.Queue, q.Topic = source.Queue, source.Topic
		reply, err := mesh.Request[protocol.WaitingActReply](ctx, nc, subject, q)
		if err != nil {
			return sum, err
		}
		sum.Count += reply.Count
	}
	return sum, nil
}
