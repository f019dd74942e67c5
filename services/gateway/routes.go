package gateway

import (
	"maps"
	"slices"
	"sync"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// maxRoutes bounds the series of each counter by route. Which routes have their
// own is settled by who comes first, and lasts as long as the gateway runs: all
// others are added up under protocol.OtherRoutes.
const maxRoutes = 500

// notByRoute say where messages are kept, which is nothing of a route's.
var notByRoute = map[string]bool{protocol.CountTaken: true, protocol.CountSent: true}

// routeNames are the routes that have series of their own.
type routeNames struct {
	mu    sync.Mutex
	known map[string]bool
}

// add adds what instances say of their routes, all services together.
func (r *routeNames) add(all []protocol.Stats) map[series]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]bool{}
	}
	sums := map[series]uint64{}
	for _, s := range all {
		for _, route := range slices.Sorted(maps.Keys(s.Routes)) {
			label := r.label(route)
			for name, n := range s.Routes[route] {
				if !notByRoute[name] {
					sums[series{route: label, name: name}] += n
				}
			}
		}
	}
	return sums
}

func (r *routeNames) label(route string) string {
	if !r.known[route] {
		if len(r.known) >= maxRoutes {
			return protocol.OtherRoutes
		}
		r.known[route] = true
	}
	return route
}
