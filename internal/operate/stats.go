package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// statsStall is how long one that has ledgers of which nothing is told yet may take longer
// than another.
const statsStall = 2 * time.Second

// Stats is what each instance of each service has counted. Of a service of which nobody
// answers nothing is known to be missing.
func Stats(ctx context.Context, nc *nats.Conn) ([]protocol.Stats, Missing, error) {
	var missing Missing
	all, err := mesh.GatherWhile(ctx, nc, protocol.SubjectStats, protocol.Empty{}, func(all []protocol.Stats) time.Duration {
		if missing = missingStats(all); len(missing) > 0 {
			return statsStall
		}
		return stall
	})
	return all, missing, err
}

// missingStats are the ledgers that nobody has told of.
func missingStats(all []protocol.Stats) (missing Missing) {
	services := map[string][]part[struct{}]{}
	for i := range all {
		services[all[i].Service] = append(services[all[i].Service], part[struct{}]{share: all[i].Share})
	}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		missing = append(missing, missingFrom(service, services[service])...)
	}
	return missing
}

// missingFrom says how many of a service's ledgers nobody has answered for.
func missingFrom[T any](service string, parts []part[T]) Missing {
	n, _ := missingOf(parts)
	if n <= 0 {
		return nil
	}
	return Missing{fmt.Sprintf("nobody of the %s service has answered for %d of its %d ledgers", service, n, parts[0].share.Total)}
}
