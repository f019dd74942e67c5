package books

import (
	"maps"
	"slices"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Counts are sums of counters: all of them, and those of queues by what the
// queues are, see scope.Template.
type Counts struct {
	All       [ledger.NumCounters]uint64
	Routes    map[string]*[ledger.NumCounters]uint64
	Takeovers uint64 // how often the ledgers changed hands
}

// Counted are those of a ledger. Those of queues that were forgotten are among
// them; those of the mesh's own trials are not.
func Counted(l *ledger.Ledger) Counts {
	c := Counts{Routes: map[string]*[ledger.NumCounters]uint64{}, Takeovers: l.Epoch()}
	for q := range l.Counting() {
		if scope.OfDiagnosis(q.Name) {
			continue
		}
		addTo(&c.All, &q.Counters)
		if q.Name != "" {
			addTo(c.route(scope.Template(q.Name)), &q.Counters)
		}
	}
	return c
}

func (c *Counts) route(name string) *[ledger.NumCounters]uint64 {
	if c.Routes == nil {
		c.Routes = map[string]*[ledger.NumCounters]uint64{}
	}
	sum := c.Routes[name]
	if sum == nil {
		sum = new([ledger.NumCounters]uint64)
		c.Routes[name] = sum
	}
	return sum
}

// Add adds other's.
func (c *Counts) Add(other *Counts) {
	addTo(&c.All, &other.All)
	c.Takeovers += other.Takeovers
	for name, counters := range other.Routes {
		addTo(c.route(name), counters)
	}
}

func addTo(sum, counters *[ledger.NumCounters]uint64) {
	for i, n := range counters {
		sum[i] += n
	}
}

// Named are the sums over all, as protocol.Stats has them.
func (c *Counts) Named() map[string]uint64 {
	named := ledger.Named(&c.All)
	named[protocol.CountTakeovers] = c.Takeovers
	return named
}

// Told are the sums of routes as protocol.Stats has them.
func (c *Counts) Told() map[string]map[string]uint64 {
	told := make(map[string]map[string]uint64, len(c.Routes))
	var rest [ledger.NumCounters]uint64
	for i, name := range slices.Sorted(maps.Keys(c.Routes)) {
		if i >= protocol.MaxStatsRoutes {
			addTo(&rest, c.Routes[name])
			continue
		}
		told[name] = ledger.Named(c.Routes[name])
	}
	if len(c.Routes) > protocol.MaxStatsRoutes {
		told[protocol.OtherRoutes] = ledger.Named(&rest)
	}
	return told
}
