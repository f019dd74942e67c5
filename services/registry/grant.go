package registry

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// hasBrokers says whether queues may be on a broker, which may not be able to do
// what the mesh itself can.
func hasBrokers(c *protocol.Config) bool {
	return c.Adapter.Name != config.AdapterBuiltin || len(c.Brokers) > 0
}

// granted asks the owners of the lanes whether the brokers of a worker's queues
// can do what its subscriptions ask for that changed at that time. A lane that
// nobody has, or somebody of an earlier version, refuses nothing.
func (s *Service) granted(ctx context.Context, w *protocol.Worker, changed time.Time) ([]string, error) {
	if !hasBrokers(s.configuration.state().config()) {
		return nil, nil
	}
	total, err := s.ledgers(ctx, "router")
	if total == 0 || err != nil {
		return nil, err
	}
	byLane := make(map[int][]protocol.Subscription)
	for _, sub := range w.Subscriptions {
		if sub.Kind != protocol.KindListen && sub.Since.Equal(changed) {
			i := ledger.Of(sub.Queue, total)
			byLane[i] = append(byLane[i], sub)
		}
	}
	answers := make([]protocol.Granted, total)
	asking, ctx := errgroup.WithContext(ctx)
	for i, subs := range byLane {
		asking.Go(func() (err error) {
			answers[i], err = s.grant(ctx, ledger.Name("router", i), subs)
			return err
		})
	}
	err = asking.Wait()
	var warnings []string
	for _, a := range answers {
		warnings = append(warnings, a.Warnings...)
	}
	return warnings, err
}

func (s *Service) grant(ctx context.Context, lane string, subs []protocol.Subscription) (protocol.Granted, error) {
	granted, err := s.askGrant(ctx, lane, protocol.GrantRequest{Subscriptions: subs})
	if code := protocol.CodeOf(err); code == protocol.CodeUnsupported || code == protocol.CodeInvalidName {
		return granted, err
	}
	return granted, nil
}

func (s *Service) askGrant(ctx context.Context, lane string, q protocol.GrantRequest) (protocol.Granted, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	return mesh.Request[protocol.Granted](ctx, s.nc, protocol.SubjectLane+lane+"."+protocol.VerbGrant, q)
}

// grantDefinition refuses a definition that the queue's broker cannot do, and warns of
// what has no effect there.
func (s *Service) grantDefinition(ctx context.Context, queue string, d *protocol.QueueDefinition) ([]string, error) {
	total, err := s.ledgers(ctx, "router")
	if total == 0 || err != nil {
		return nil, err
	}
	sub := subscriptionOf(queue, d)
	sub.RetriesDefault = d.MaxRetries == protocol.DefaultMaxRetries
	granted, err := s.grant(ctx, ledger.Name("router", ledger.Of(sub.Queue, total)), []protocol.Subscription{sub})
	return granted.Warnings, err
}

// subscriptionOf is what a definition asks for.
func subscriptionOf(queue string, d *protocol.QueueDefinition) protocol.Subscription {
	return protocol.Subscription{Queue: scope.JobsQueue(queue), Type: d.Type, MaxRetries: d.MaxRetries, BackoffMs: d.BackoffMs, MaxPriority: uint8(d.MaxPriority)}
}
