package router

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// checkNames refuses a placement that moves queues of subscribers to a broker which has
// no names for them: nothing could be published to their topics any more, for nobody.
func (s *Service) checkNames(ctx context.Context, p *placement) error {
	refused, err := gather(ctx, s, func(l *lane) error { return l.checkNames(p) })
	return cmp.Or(err, cmp.Or(refused...))
}

func (l *lane) checkNames(p *placement) error {
	for name, q := range l.queues {
		id := p.routing.Of(name)
		if q.bound == nil && len(q.consumers) == 0 || id == l.placed.routing.Of(name) {
			continue
		}
		i := slices.IndexFunc(p.brokers, func(r *remoteBroker) bool { return r.id == id })
		if i < 0 {
			continue
		}
		if n, names := p.brokers[i].Remote.(broker.Naming); names {
			if err := n.CheckName(name); err != nil {
				e := protocol.AsError(err)
				return protocol.Errorf(e.Code, "%s cannot be where a route leads it: %s: leave it where it is, or remove it first", name, e.Message)
			}
		}
	}
	return nil
}
