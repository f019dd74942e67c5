package router

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
)

// next is how many ledgers retry and dlq have: where messages go that leave a
// lane. The numbers are settled at those services' first start, which may be
// later than the router's.
type next struct{ retry, dlq atomic.Int64 }

const learnAgain = 250 * time.Millisecond

func (n *next) known() bool { return n.retry.Load() > 0 && n.dlq.Load() > 0 }

// learnNext finds the numbers out, and lets the lanes know.
func (s *Service) learnNext(ctx context.Context) {
	js, err := jetstream.New(s.bulk)
	if err != nil {
		s.log.Error("the numbers of ledgers cannot be learned", "error", err)
		return
	}
	t := time.NewTicker(learnAgain)
	defer t.Stop()
	for !s.next.known() {
		learn(ctx, js, "retry", &s.next.retry)
		learn(ctx, js, "dlq", &s.next.dlq)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
	s.eachLane(func(*lane) {})
}

func learn(ctx context.Context, js jetstream.JetStream, service string, n *atomic.Int64) {
	if n.Load() > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if found, err := ledger.Count(ctx, js, service); err == nil {
		n.Store(int64(found))
	}
}

// nextOf names the ledgers that a lane's messages leave to. All dead letters of
// a queue are in one ledger, as the queue is in one lane.
func (s *Service) nextOf(lane string) (retry, dlq string) {
	at := s.slot(lane)
	if at == nil || !s.next.known() {
		return "", ""
	}
	return ledger.Name("retry", at.index%int(s.next.retry.Load())), ledger.Name("dlq", at.index%int(s.next.dlq.Load()))
}
