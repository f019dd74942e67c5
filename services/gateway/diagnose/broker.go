package diagnose

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// brokersTime is how long it may take to find out which brokers there are, and what is
// on them.
const brokersTime = 5 * time.Second

// onBrokers adds the brokers outside of the mesh to a report. The messages of a
// diagnosis stay in the mesh: a line says which of these its queues are on, and has
// failed if one of them is away.
func (r *Report) onBrokers(ctx context.Context, o Options, subjects []*subject) {
	ctx, cancel := context.WithTimeout(ctx, brokersTime)
	defer cancel()
	all, err := operate.Brokers(ctx, o.NC, false)
	if err != nil {
		o.Logger.Warn("it is not known which brokers there are", "error", err)
		return
	}
	r.Brokers = slices.DeleteFunc(all, func(b protocol.BrokerInfo) bool { return b.Place == "" })
	if len(r.Brokers) == 0 {
		return
	}
	stored, err := mesh.Request[protocol.StoredConfig](ctx, o.NC, protocol.SubjectConfig, protocol.ConfigRequest{})
	if err != nil {
		o.Logger.Warn("it is not known what is on which broker", "error", err)
		return
	}
	routing, err := config.NewRouting(&stored.Placement)
	if err != nil {
		o.Logger.Warn("it is not known what is on which broker", "error", err)
		return
	}
	for i, s := range subjects {
		r.Lines[i].isOn(s.brokers(routing, r.Brokers))
	}
}

// brokers are those that the subject's queues are on.
func (s *subject) brokers(routing *config.Routing, all []protocol.BrokerInfo) (on []protocol.BrokerInfo) {
	ids := map[string]bool{}
	for _, queue := range s.names {
		ids[routing.Of(queue)] = true
	}
	if len(s.names) == 0 {
		ids[routing.Of(scope.ScopedName(ownRoute, s.route))] = true
	}
	for i := range all {
		if ids[all[i].ID] {
			on = append(on, all[i])
		}
	}
	return on
}

// isOn says on which brokers the line's queues are.
func (l *Line) isOn(brokers []protocol.BrokerInfo) {
	for i := range brokers {
		b := &brokers[i]
		l.On = append(l.On, b.Name)
		if isMissing(*b) && l.OK {
			l.OK, l.Error = false, protocol.Errorf(protocol.CodeUnavailable, "%s", b.Away)
		}
	}
}

func isMissing(b protocol.BrokerInfo) bool { return b.State == protocol.BrokerActive && b.Away != "" }
