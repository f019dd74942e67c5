package books

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/internal/ledger"
)

const lanesRetry = 250 * time.Millisecond

// Lanes says which lane a queue belongs to. The number of lanes is settled for
// good when the first router starts, which may be after this service has.
type Lanes struct{ total atomic.Int64 }

// Learn returns when the number is known, or with ctx's error.
func (l *Lanes) Learn(ctx context.Context, js jetstream.JetStream) error {
	again := time.NewTicker(lanesRetry)
	defer again.Stop()
	for {
		n, err := ledger.Count(ctx, js, "router")
		if err == nil && n > 0 {
			l.total.Store(int64(n))
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Known says whether Of can answer.
func (l *Lanes) Known() bool { return l.total.Load() > 0 }

// All are the ledgers of all lanes, none before their number is known.
func (l *Lanes) All() []string {
	all := make([]string, l.total.Load())
	for i := range all {
		all[i] = ledger.Name("router", i)
	}
	return all
}

// Of is the ledger of the queue's lane; Known must be true.
func (l *Lanes) Of(queue string) string {
	return ledger.Name("router", ledger.Of(queue, int(l.total.Load())))
}
