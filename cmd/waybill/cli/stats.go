package cli

import (
	"context"
	"maps"
	"slices"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type statsCmd struct{ watching }

func (c *statsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (c *statsCmd) list(a *app) error {
	nc, err := a.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(a.ctx, askTimeout)
	defer cancel()
	all, err := mesh.Gather[protocol.Stats](ctx, nc, protocol.SubjectStats, protocol.Empty{}, 0)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return unreachable(protocol.Errorf(protocol.CodeUnavailable, "NATS answers at %s, but no service of a mesh does", a.flags.NATS))
	}
	slices.SortFunc(all, compareService)
	return a.show(all, func() { report(a, all) })
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
