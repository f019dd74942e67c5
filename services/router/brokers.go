package router

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// listBrokers answers SubjectBrokers for the lanes this router owns.
func (s *Service) listBrokers(ctx context.Context, q protocol.BrokersRequest) (protocol.BrokersPage, error) {
	p := s.placed()
	page := protocol.BrokersPage{Instance: s.o.Instance, Number: p.Number, Total: len(s.slots()), Brokers: []protocol.BrokerInfo{}}
	far, err := gather(ctx, s, func(l *lane) []farQueue { return l.farQueues(func(string) bool { return true }) })
	if err != nil {
		return page, err
	}
	page.Lanes = len(far)
	if q.ID == "" || q.ID == s.builtin.Name() {
		page.Brokers = append(page.Brokers, s.builtinInfo(p))
	}
	for _, b := range p.Brokers {
		if q.ID != "" && q.ID != b.ID {
			continue
		}
		info := p.info(b)
		busy, err := gather(ctx, s, func(l *lane) int64 { return l.busyAt(b.ID) })
		if err != nil {
			return page, err
		}
		for _, n := range busy {
			info.Busy += n
		}
		if q.Count && info.Away == "" {
			count(ctx, &info, far)
		}
		page.Brokers = append(page.Brokers, info)
	}
	return page, nil
}

// builtinInfo is the mesh itself, which other services have messages of too.
func (s *Service) builtinInfo(p *placement) protocol.BrokerInfo {
	return protocol.BrokerInfo{ID: s.builtin.Name(), Name: s.builtin.Name(), Kind: s.builtin.Name(), State: protocol.BrokerActive, Routes: p.routesTo(s.builtin.Name())}
}

// info is what is known of a broker without looking at its queues.
func (p *placement) info(b protocol.PlacedBroker) protocol.BrokerInfo {
	info := protocol.BrokerInfo{
		ID: b.ID, Name: b.Name, Kind: b.Adapter.Name, State: b.State, Place: b.Place, Replaced: b.Replaced, Routes: p.routesTo(b.ID),
	}
	for _, r := range p.brokers {
		if r.id != b.ID {
			continue
		}
		if err := r.Away(); err != nil {
			info.Away = protocol.AsError(err).Message
		}
		if since := r.awaySince.Load(); since > 0 && info.Away != "" {
			info.Since = time.Unix(0, since).UTC()
		}
	}
	for _, b := range p.absent {
		if b.ID == info.ID {
			info.Away, info.Since = protocol.AsError(b.err).Message, b.since
		}
	}
	return info
}

// routesTo are the patterns of the routes to a broker.
func (p *placement) routesTo(id string) (patterns []string) {
	for _, route := range p.Routes {
		if route.Broker == id {
			patterns = append(patterns, route.Pattern)
		}
	}
	if p.Adapter == id {
		patterns = append(patterns, everything)
	}
	return patterns
}

// everything is the pattern of what no route names.
const everything = "**"

// count looks at all queues of a broker's.
func count(ctx context.Context, info *protocol.BrokerInfo, lanes [][]farQueue) {
	var mu sync.Mutex
	var looks errgroup.Group
	looks.SetLimit(looksAtOnce)
	for _, queues := range lanes {
		for _, f := range queues {
			if f.id != info.ID {
				continue
			}
			info.Queues++
			looks.Go(func() error {
				depth, err := f.Depth(ctx, f.queue, f.delays)
				mu.Lock()
				defer mu.Unlock()
				add(info, depth, f.live)
				return err
			})
		}
	}
	info.Counted = looks.Wait() == nil
}

func add(info *protocol.BrokerInfo, depth broker.Depth, live int64) {
	info.Ready += depth.Ready
	info.Waiting += depth.Waiting
	info.Dead += depth.Dead
	info.InFlight += live
}

// gauges tell of each broker whether it is there, and with the other gauges what the
// brokers were seen to hold.
func (p *placement) gauges(to *protocol.Stats, far *farTotals) {
	if len(p.Brokers) == 0 {
		return
	}
	to.Gauges["waiting"], to.Gauges["dead"] = float64(far.waiting), float64(far.dead)
	to.Brokers = make(map[string]protocol.BrokerStats, len(p.Brokers))
	for _, b := range p.Brokers {
		one := far.brokers[b.ID]
		one.Up = p.info(b).Away == ""
		to.Brokers[b.Name] = one
	}
}

// away says which brokers that take publishes cannot be used, and, as notes, which of
// the others.
func (p *placement) away() (waiting, notes []string) {
	for _, b := range p.Brokers {
		switch away := p.info(b).Away; {
		case away == "":
		case b.State == protocol.BrokerActive:
			waiting = append(waiting, away)
		default:
			notes = append(notes, "the broker "+b.Name+" is "+string(b.State)+" and waits: "+away)
		}
	}
	return waiting, notes
}
