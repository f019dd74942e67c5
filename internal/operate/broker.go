package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// countStall is how long one router may take longer than another to look at what
// brokers hold, of which one may not answer.
const countStall = 6 * time.Second

// Brokers are the brokers of the mesh, each with what the lanes of all routers have on
// it if count says so; in order of name, the mesh itself first.
func Brokers(ctx context.Context, nc *nats.Conn, count bool) ([]protocol.BrokerInfo, error) {
	stall := time.Duration(0)
	if count {
		stall = countStall
	}
	pages, err := mesh.GatherUntil(ctx, nc, protocol.SubjectBrokers, protocol.BrokersRequest{Count: count}, stall, protocol.AllLanes)
	if err != nil {
		return nil, err
	}
	if len(pages) == 0 {
		return nil, protocol.Errorf(protocol.CodeUnavailable, "no router answers; `waybill stats` shows which services do")
	}
	all := []protocol.BrokerInfo{}
	for _, page := range pages {
		for i := range page.Brokers {
			all = withBroker(all, &page.Brokers[i])
		}
	}
	slices.SortFunc(all, func(a, b protocol.BrokerInfo) int {
		return cmp.Or(cmp.Compare(min(len(a.Place), 1), min(len(b.Place), 1)), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// withBroker adds what one router says of a broker.
func withBroker(all []protocol.BrokerInfo, one *protocol.BrokerInfo) []protocol.BrokerInfo {
	i := slices.IndexFunc(all, func(b protocol.BrokerInfo) bool { return b.ID == one.ID })
	if i < 0 {
		return append(all, *one)
	}
	sum := &all[i]
	if one.Away != "" && (sum.Away == "" || one.Since.Before(sum.Since)) {
		sum.Away, sum.Since = one.Away, one.Since
	}
	sum.Counted = sum.Counted && one.Counted
	sum.Queues += one.Queues
	sum.Ready += one.Ready
	sum.Waiting += one.Waiting
	sum.InFlight += one.InFlight
	sum.Dead += one.Dead
	sum.Busy += one.Busy
	return all
}

// BrokerStats are the brokers outside of the mesh as all routers see them together, by
// name.
func BrokerStats(all []protocol.Stats) map[string]protocol.BrokerStats {
	sums := map[string]protocol.BrokerStats{}
	for _, s := range all {
		for name, b := range s.Brokers {
			if sum, is := sums[name]; is {
				b = sum.Plus(b)
			}
			sums[name] = b
		}
	}
	return sums
}
