package gateway

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-mq/waybill/internal/operate"
)

// DefaultReconcile is how often the gateway reconciles by itself.
const DefaultReconcile = 5 * time.Minute

func (s *Service) reconciliation(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "reconcile", Method: http.MethodGet, Path: "/system/reconcile", Tags: []string{tagMesh},
		Summary:     "Compare what the mesh has counted with what it holds",
		Description: "Every ledger looks at all its messages, twice. The status is 200 also if the books do not balance: `balanced` says so, and `gaps` where.",
	}, func(ctx context.Context, _ *nothing) (*answer[operate.Reconciliation], error) {
		return answered(s.reconcile(ctx))
	})
}

// reconcile reconciles, one at a time, and keeps the result for /metrics.
func (s *Service) reconcile(ctx context.Context) (operate.Reconciliation, error) {
	select {
	case s.books.one <- struct{}{}:
		defer func() { <-s.books.one }()
	case <-ctx.Done():
		return operate.Reconciliation{}, ctx.Err()
	}
	r, err := operate.Reconcile(ctx, s.nc)
	if err == nil {
		s.books.last.Store(&r)
	}
	return r, err
}

// books are the last reconciliation, and whether one is under way.
type books struct {
	one  chan struct{}
	last atomic.Pointer[operate.Reconciliation]
}

// reconcileAgain reconciles from time to time until ctx ends.
func (s *Service) reconcileAgain(ctx context.Context) {
	t := time.NewTicker(s.o.Reconcile)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		s.reconcileNow(ctx)
	}
}

func (s *Service) reconcileNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	r, err := s.reconcile(ctx)
	switch {
	case err != nil:
		s.log.Warn("the books could not be compared", "error", err)
	case len(r.Gaps) > 0:
		s.log.Error("the books do not balance: waybill reconcile tells more", "gaps", len(r.Gaps)+r.MoreGaps,
			"where", r.Gaps[0].Where, "name", r.Gaps[0].Queue+r.Gaps[0].Route, "equation", r.Gaps[0].Equation)
	}
}

var (
	gapsDesc   = prometheus.NewDesc("waybill_reconcile_gaps", "Gaps between what was counted and what is held, at the last look.", nil, nil)
	unseenDesc = prometheus.NewDesc("waybill_reconcile_unseen_ledgers", "Ledgers that could not be looked at, at the last look.", nil, nil)
	lookedDesc = prometheus.NewDesc("waybill_reconcile_timestamp_seconds", "When the books were last compared.", nil, nil)
)

func (b *books) collect(out chan<- prometheus.Metric) {
	r := b.last.Load()
	if r == nil {
		return
	}
	out <- prometheus.MustNewConstMetric(gapsDesc, prometheus.GaugeValue, float64(len(r.Gaps)+r.MoreGaps))
	out <- prometheus.MustNewConstMetric(unseenDesc, prometheus.GaugeValue, float64(len(r.Unseen)))
	out <- prometheus.MustNewConstMetric(lookedDesc, prometheus.GaugeValue, float64(r.At.UnixMilli())/1000)
}
