package router

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// audit says what the lane has counted and what is there, in its ledger and on
// brokers.
func (o *openLane) audit(ctx context.Context, _ protocol.Empty) (protocol.LedgerAudit, error) {
	type answer struct {
		audit ledger.Audit
		far   []farAudit
	}
	a, err := ask(ctx, o, func(l *lane) (a answer) {
		a.audit = l.ledger.Audit()
		a.far = l.auditFar(&a.audit)
		return a
	})
	if err != nil {
		return protocol.LedgerAudit{}, err
	}
	told := books.Audited(o.at.name, &a.audit)
	err = o.addFarAudits(ctx, a.far, &told)
	return told, err
}

// farAudit is what is counted of a queue that brokers have.
type farAudit struct {
	queue   string
	in, out int64      // what the ledger keeps is out
	on      []farQueue // several, while it moves
}

// auditFar marks the queues that brokers have.
func (l *lane) auditFar(a *ledger.Audit) []farAudit {
	on := make(map[string][]farQueue)
	for _, f := range l.farQueues(func(string) bool { return true }) {
		on[f.queue] = append(on[f.queue], f)
	}
	far := make([]farAudit, 0, len(on))
	for i := range a.Queues {
		q := &a.Queues[i]
		if q.OnBroker = len(on[q.Name]) > 0; !q.OnBroker {
			continue
		}
		c := l.counters(q.Name)
		within := int64(c[ledger.Sent]) // to wait in the mesh: it comes back as taken
		far = append(far, farAudit{q.Name, ledger.In(c) - within, ledger.Out(c) - within + q.Kept, on[q.Name]})
	}
	return far
}

// addFarAudits looks at what the brokers hold.
func (o *openLane) addFarAudits(ctx context.Context, far []farAudit, told *protocol.LedgerAudit) error {
	var mu sync.Mutex
	var looks errgroup.Group
	looks.SetLimit(looksAtOnce)
	for _, f := range far {
		looks.Go(func() error {
			one := protocol.AuditOnBroker{Queue: f.queue, In: f.in, Out: f.out}
			away := ""
			for _, at := range f.on {
				one.Broker = strings.TrimPrefix(one.Broker+", "+at.Name(), ", ")
				depth, err := at.Depth(ctx, f.queue, at.delays)
				if err != nil {
					away = at.Name()
				}
				one.Held += at.live + depth.Ready + depth.Waiting + depth.Dead
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case away != "":
				if !slices.Contains(told.Away, away) {
					told.Away = append(told.Away, away)
				}
			case one.In != 0 || one.Out != 0 || one.Held != 0: // else what there is waits in the mesh
				told.OnBrokers = append(told.OnBrokers, one)
			}
			return nil
		})
	}
	err := looks.Wait()
	slices.SortFunc(told.OnBrokers, func(a, b protocol.AuditOnBroker) int {
		return cmp.Or(cmp.Compare(abs(b.Difference()), abs(a.Difference())), cmp.Compare(a.Queue, b.Queue))
	})
	told.OnBrokers = told.OnBrokers[:min(len(told.OnBrokers), protocol.MaxAuditGaps)]
	return err
}

func abs(n int64) int64 { return max(n, -n) }
