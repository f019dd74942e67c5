package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type statsCmd struct {
	watching

	Routes bool `short:"r" help:"By route as well."`
}

func (c *statsCmd) Run(a *app) error {
	var before *sample
	return c.watching.run(a, func(a *app) error {
		nc, err := a.connect()
		if err != nil {
			return err
		}
		defer nc.Close()
		all, missing, err := gatherStats(a, nc)
		if err != nil {
			return err
		}
		defer sayMissing(a, missing)
		if c.Watch {
			before = sampleOf(all, before)
			return a.show(before, func() { c.report(a, all, before) })
		}
		return a.show(all, func() { c.report(a, all, nil) })
	})
}

// report is for people; with a sample it has its rates.
func (c *statsCmd) report(a *app, all []protocol.Stats, s *sample) {
	if s != nil {
		s.report(a)
	} else {
		report(a, all)
	}
	if c.Routes {
		a.sayf("")
		tabulateRoutes(a, all)
	}
}

func gatherStats(a *app, nc *nats.Conn) ([]protocol.Stats, operate.Missing, error) {
	ctx, cancel := context.WithTimeout(a.ctx, askTimeout)
	defer cancel()
	all, missing, err := operate.Stats(ctx, nc)
	if err != nil {
		return nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, startOne(protocol.Errorf(protocol.CodeUnavailable, "NATS answers at %s, but no service of a mesh does", a.flags.NATS))
	}
	slices.SortFunc(all, compareService)
	return all, missing, nil
}

// sample is what --watch shows.
type sample struct {
	At       time.Time          `json:"at"`
	Counters map[string]uint64  `json:"counters"` // over all services
	Rates    map[string]float64 `json:"rates"`    // a second, since the one before
	Gauges   map[string]float64 `json:"gauges"`
}

// notOfMessages are counted in every ledger a message passes.
var notOfMessages = []string{protocol.CountTaken, protocol.CountSent, protocol.CountTakeovers}

func sampleOf(all []protocol.Stats, before *sample) *sample {
	s := &sample{At: time.Now().UTC(), Counters: map[string]uint64{}, Rates: map[string]float64{}, Gauges: map[string]float64{}}
	for _, one := range all {
		for name, n := range one.Counters {
			if !slices.Contains(notOfMessages, name) {
				s.Counters[name] += n
			}
		}
		for _, name := range []string{"ready", "in_flight", "waiting", "dead", "moving"} {
			s.Gauges[name] += one.Gauges[name]
		}
	}
	if before == nil {
		return s
	}
	for name, n := range s.Counters {
		// A ledger that changes hands is nobody's for a moment.
		s.Rates[name] = max(0, float64(int64(n)-int64(before.Counters[name]))/s.At.Sub(before.At).Seconds())
	}
	return s
}

// report is a table of the counters with their rates, and one of what there is.
func (s *sample) report(a *app) {
	g := newGrid("COUNTER", "TOTAL", "A SECOND")
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		g.row(name, s.Counters[name], fmt.Sprintf("%.1f", s.Rates[name]))
	}
	g.write(a.stdout)
	a.sayf("")
	now := newGrid("NOW", "MESSAGES")
	for _, name := range slices.Sorted(maps.Keys(s.Gauges)) {
		now.row(name, s.Gauges[name])
	}
	now.write(a.stdout)
}

// tabulateRoutes is a table with a line for each route.
func tabulateRoutes(a *app, all []protocol.Stats) {
	columns := []string{
		protocol.CountPublished, protocol.CountAcknowledged, protocol.CountFailed, protocol.CountRejected, protocol.CountRetried,
		protocol.CountDeadLettered, protocol.CountRedriven, protocol.CountDiscarded, protocol.CountFiltered,
	}
	sums := map[string]map[string]uint64{}
	for _, s := range all {
		for route, counters := range s.Routes {
			if sums[route] == nil {
				sums[route] = map[string]uint64{}
			}
			for name, n := range counters {
				sums[route][name] += n
			}
		}
	}
	header := append(make([]any, 0, 1+len(columns)), "ROUTE")
	for _, name := range columns {
		header = append(header, name)
	}
	g := newGrid(header...)
	for _, route := range slices.Sorted(maps.Keys(sums)) {
		row := append(make([]any, 0, 1+len(columns)), route)
		for _, name := range columns {
			row = append(row, sums[route][name])
		}
		g.row(row...)
	}
	g.write(a.stdout)
}

// tabulateBrokers is a table with a line for each broker outside of the mesh.
func tabulateBrokers(a *app, all []protocol.Stats) {
	sums := operate.BrokerStats(all)
	if len(sums) == 0 {
		return
	}
	g := newGrid("BROKER", "READY", "WAITING", "DEAD")
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if b := sums[name]; !b.Up || b.Unknown > 0 {
			g.row(name, unknown, unknown, unknown)
		} else {
			g.row(name, b.Ready, b.Waiting, b.Dead)
		}
	}
	g.write(a.stdout)
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if !sums[name].Up {
			a.sayf("%s: how much the broker %s holds; it is away (%s)", unknown, name, command(a.flags.NATS, "broker ls"))
		}
	}
	a.sayf("")
}

func compareService(x, y protocol.Stats) int {
	if x.Service != y.Service {
		return slices.Compare([]string{x.Service}, []string{y.Service})
	}
	return slices.Compare([]string{x.Instance}, []string{y.Instance})
}

// report is a table of the counters, one column a service, then of the gauges.
func report(a *app, all []protocol.Stats) {
	var services []string
	counters, gauges := map[string]map[string]uint64{}, map[string]map[string]float64{}
	for _, s := range all {
		if !slices.Contains(services, s.Service) {
			services = append(services, s.Service)
		}
		collect(counters, s.Service, s.Counters)
		collect(gauges, s.Service, s.Gauges)
	}
	tabulate(a, "COUNTER", services, counters)
	a.sayf("")
	tabulate(a, "NOW", services, gauges)
	a.sayf("")
	tabulateBrokers(a, all)
	g := newGrid("SERVICE", "INSTANCE", "VERSION")
	for _, s := range all {
		g.row(s.Service, s.Instance, s.Version)
	}
	g.write(a.stdout)
}

func collect[N uint64 | float64](sums map[string]map[string]N, service string, values map[string]N) {
	for name, n := range values {
		if sums[name] == nil {
			sums[name] = map[string]N{}
		}
		sums[name][service] += n
	}
}

func tabulate[N uint64 | float64](a *app, title string, services []string, sums map[string]map[string]N) {
	header := make([]any, 0, 1+len(services))
	header = append(header, title)
	for _, s := range services {
		header = append(header, s)
	}
	g := newGrid(header...)
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		row := []any{name}
		for _, s := range services {
			if n, ok := sums[name][s]; ok {
				row = append(row, n)
			} else {
				row = append(row, "")
			}
		}
		g.row(row...)
	}
	g.write(a.stdout)
}
