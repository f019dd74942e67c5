package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-mq/waybill/internal/operate"
)

type reconcileCmd struct {
	Timeout time.Duration `default:"60s" help:"How long it may take." placeholder:"TIME"`
}

func (c *reconcileCmd) Run(a *app) error {
	nc, err := a.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	r, err := operate.Reconcile(ctx, nc)
	if err != nil {
		return unreachable(err)
	}
	if err := a.show(r, func() { reportBalance(a, &r) }); err != nil {
		return err
	}
	return r.Err()
}

func reportBalance(a *app, r *operate.Reconciliation) {
	if len(r.Routes) > 0 {
		g := newGrid("ROUTE", "PUBLISHED", "ACKNOWLEDGED", "FILTERED", "DISCARDED", "WRITTEN OFF", "LIVE")
		for _, b := range r.Routes {
			g.row(b.Route, b.Published, b.Acknowledged, b.Filtered, b.Discarded, b.WrittenOff, b.Live)
		}
		g.write(a.stdout)
		a.sayf("")
	}
	if len(r.Brokers) > 0 {
		g := newGrid("QUEUE", "BROKER", "IN", "OUT", "HELD", "DIFFERENCE")
		for _, b := range r.Brokers {
			g.row(b.Queue, b.Broker, b.In, b.Out, b.Held, b.Difference)
		}
		g.write(a.stdout)
		a.sayf("")
	}
	for _, gap := range r.Gaps {
		sayGap(a, &gap)
	}
	if r.MoreGaps > 0 {
		a.sayf("and %s", plural(int64(r.MoreGaps), "more gap", "more gaps"))
	}
	if len(r.Unseen) > 0 {
		a.sayf("not looked at, since nobody owns them now: %s", strings.Join(r.Unseen, ", "))
	}
	if len(r.Away) > 0 {
		a.sayf("not looked at, since it is away: %s", strings.Join(r.Away, ", "))
	}
	if r.Balanced {
		a.sayf("balanced: %s of %s in %s", plural(r.Messages, "message", "messages"), plural(int64(r.Queues), "queue", "queues"), plural(int64(r.Ledgers), "ledger", "ledgers"))
	}
}

func sayGap(a *app, g *operate.Gap) {
	what := g.Where
	if name := g.Queue + g.Route; name != "" {
		what += ", " + name
	}
	a.sayf("gap: %s: %d is not %d\n  %s", printable(what), g.Left, g.Right, g.Equation)
	if len(g.Counters) > 0 {
		parts := make([]string, 0, len(g.Counters))
		for _, name := range slices.Sorted(maps.Keys(g.Counters)) {
			parts = append(parts, fmt.Sprintf("%s %d", name, g.Counters[name]))
		}
		a.sayf("  %s", strings.Join(parts, ", "))
	}
	a.sayf("  look at %s", g.Look)
}
