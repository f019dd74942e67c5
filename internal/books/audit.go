package books

import (
	"context"
	"strings"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Equations that hold for every queue in every ledger, at any time.
const (
	// EquationKept: what came in left again, or is there.
	EquationKept = "published + taken = acknowledged + filtered + discarded + sent + written_off + kept"
	// EquationDelivered: every delivery ended in one way.
	EquationDelivered = "delivered = acknowledged + failed + rejected + incomplete + vanished + handed_back"
	// EquationRedriven: what leaves the dead letters is redriven; of their ledgers
	// alone.
	EquationRedriven = "redriven = sent"
)

// auditQuestion has an owner look at all it has.
func auditQuestion[O Owner[O]]() Question[O, protocol.Empty, protocol.LedgerAudit] {
	return Question[O, protocol.Empty, protocol.LedgerAudit]{
		Verb: protocol.VerbAudit,
		Reply: func(ctx context.Context, book *Book[O], _ protocol.Empty) (protocol.LedgerAudit, error) {
			audit, err := Ask(ctx, book, func(owner O) ledger.Audit { return owner.Ledger().Audit() })
			return Audited(book.Name(), &audit), err
		},
	}
}

// Audited is an audit as others are told of it.
func Audited(name string, a *ledger.Audit) protocol.LedgerAudit {
	told := protocol.LedgerAudit{
		Ledger: name, Seq: a.Seq, Queues: len(a.Queues),
		Sending: handovers(a.Sending), Receiving: handovers(a.Receiving),
	}
	sums := map[string]*ledger.QueueAudit{}
	for i := range a.Queues {
		q := &a.Queues[i]
		told.Entries += q.Kept + q.Moving
		told.Gaps = append(told.Gaps, gaps(name, q)...)
		if q.Name != "" && !scope.OfDiagnosis(q.Name) {
			addRoute(sums, q)
		}
	}
	if n := len(told.Gaps); n > protocol.MaxAuditGaps {
		told.Gaps, told.MoreGaps = told.Gaps[:protocol.MaxAuditGaps:protocol.MaxAuditGaps], n-protocol.MaxAuditGaps
	}
	told.Routes = routes(sums)
	return told
}

// gaps are the equations that do not hold for a queue of a ledger.
func gaps(name string, q *ledger.QueueAudit) (found []protocol.AuditGap) {
	c := &q.Counters
	check := func(equation string, left, right int64) {
		if left != right {
			found = append(found, protocol.AuditGap{
				Queue: q.Name, Equation: equation, Left: left, Right: right, Kept: q.Kept, Counters: ledger.Named(c),
			})
		}
	}
	if !q.OnBroker {
		check(EquationKept, ledger.In(c), ledger.Out(c)+q.Kept)
	}
	check(EquationDelivered, int64(c[ledger.Delivered]), int64(c[ledger.Acknowledged]+c[ledger.Failed]+c[ledger.Rejected]+
		c[ledger.Incomplete]+c[ledger.Vanished]+c[ledger.HandedBack]))
	if c[ledger.Redriven] > 0 && strings.HasPrefix(name, "dlq-") { // a lane counts what was redriven on a broker
		check(EquationRedriven, int64(c[ledger.Redriven]), int64(c[ledger.Sent]))
	}
	return found
}

func addRoute(sums map[string]*ledger.QueueAudit, q *ledger.QueueAudit) {
	name := scope.Template(q.Name)
	sum := sums[name]
	if sum == nil {
		sum = &ledger.QueueAudit{}
		sums[name] = sum
	}
	addTo(&sum.Counters, &q.Counters)
	sum.Kept += q.Kept
	sum.Moving += q.Moving
	sum.OnBroker = sum.OnBroker || q.OnBroker
}

// routes are the sums, all in one if there are more than MaxStatsRoutes.
func routes(sums map[string]*ledger.QueueAudit) map[string]protocol.AuditRoute {
	if len(sums) > protocol.MaxStatsRoutes {
		var all ledger.QueueAudit
		for _, sum := range sums {
			addTo(&all.Counters, &sum.Counters)
			all.Kept, all.Moving, all.OnBroker = all.Kept+sum.Kept, all.Moving+sum.Moving, all.OnBroker || sum.OnBroker
		}
		sums = map[string]*ledger.QueueAudit{protocol.OtherRoutes: &all}
	}
	told := make(map[string]protocol.AuditRoute, len(sums))
	for name, sum := range sums {
		told[name] = protocol.AuditRoute{Counters: ledger.Named(&sum.Counters), Kept: sum.Kept, Moving: sum.Moving, OnBroker: sum.OnBroker}
	}
	return told
}

func handovers(all []ledger.Handovers) []protocol.AuditHandovers {
	told := make([]protocol.AuditHandovers, 0, len(all))
	for _, h := range all {
		spans := make([]protocol.AuditSpan, 0, len(h.Spans))
		for _, s := range h.Spans {
			spans = append(spans, protocol.AuditSpan(s))
		}
		told = append(told, protocol.AuditHandovers{Ledger: h.Ledger, Below: h.Below, Spans: spans})
	}
	return told
}
