package diagnose

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// brokersTime is how long routers may take to say which brokers there are.
const brokersTime = 5 * time.Second

// brokers are those outside of the mesh.
func brokers(ctx context.Context, o Options) []protocol.BrokerInfo {
	ctx, cancel := context.WithTimeout(ctx, brokersTime)
	defer cancel()
	all, err := operate.Brokers(ctx, o.NC, false)
	if err != nil {
		o.Logger.Warn("it is not known which brokers there are", "error", err)
	}
	return slices.DeleteFunc(all, func(b protocol.BrokerInfo) bool { return b.Place == "" })
}

func isMissing(b protocol.BrokerInfo) bool { return b.State == protocol.BrokerActive && b.Away != "" }

// missed has the lines fail that have queues on a broker that is away, also those that
// were not tried there.
func (r *Report) missed() {
	for _, b := range r.Brokers {
		if !isMissing(b) {
			continue
		}
		for i := range r.Lines {
			if l := &r.Lines[i]; l.OK && slices.Contains(l.On, b.Name) {
				l.OK, l.Error = false, protocol.Errorf(protocol.CodeUnavailable, "%s", b.Away)
			}
		}
	}
}
