package retry

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Messages of queues that are on a broker wait there for their next try. The
// owners of the queues' lanes read them and act on them, and are asked beside the
// ledgers.

// addFar fills the last page up with what waits on brokers; on the others it is
// counted.
func (s *Service) addFar(ctx context.Context, q protocol.WaitingListRequest, page *protocol.WaitingPage, limit int) error {
	q.Limit = 0
	if page.Next == "" {
		q.Limit = limit - len(page.Messages)
	}
	answers, err := books.AskLanes[protocol.WaitingPage](ctx, s.host.Conn, &s.host.Lanes, q.Queue, protocol.VerbBrokerWaiting, q)
	if err != nil {
		return err
	}
	var far []protocol.WaitingMessage
	for _, a := range answers {
		page.Total, page.Away = page.Total+a.Total, append(page.Away, a.Away...)
		far = append(far, a.Messages...)
	}
	slices.Sort(page.Away)
	page.Away = slices.Compact(page.Away)
	slices.SortFunc(far, compareWaiting)
	page.Messages = append(page.Messages, far[:min(len(far), q.Limit)]...)
	slices.SortStableFunc(page.Messages, compareWaiting)
	return nil
}

func compareWaiting(a, b protocol.WaitingMessage) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.MessageID, b.MessageID))
}

// actFar lets go, or cancels, what waits on brokers. UNAVAILABLE: what waits on one of
// them does not, since it cannot be asked.
func (s *Service) actFar(ctx context.Context, what string, q protocol.WaitingActRequest) (sum int64, err error) {
	request := protocol.BrokerWaitingAct{Action: what, WaitingActRequest: q}
	answers, err := books.AskLanes[protocol.WaitingActReply](ctx, s.host.Conn, &s.host.Lanes, q.Queue, protocol.VerbBrokerWaitingAct, request)
	var away []string
	for _, a := range answers {
		sum, away = sum+a.Count, append(away, a.Away...)
	}
	if err == nil && (q.MessageID == "" || sum == 0) {
		err = books.Unasked(away)
	}
	return sum, err
}
