package config

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Places are the brokers outside of the mesh that a configuration has, knowing those
// there were. A broker is known again by its place. One that the configuration does not
// name any more stays, draining, until somebody takes it out of the list: it may
// hold messages. One that it calls retired does not.
func Places(c *protocol.Config, before []protocol.PlacedBroker) []protocol.PlacedBroker {
	var now []protocol.PlacedBroker
	for _, b := range configured(c) {
		place, err := PlaceOf(b.Adapter)
		if err != nil {
			continue // the configuration is refused
		}
		p := protocol.PlacedBroker{Name: b.name, Adapter: b.Adapter, State: b.State, Place: place}
		if old := atPlace(before, place); old != nil {
			p.ID = old.ID
		} else {
			p.ID = b.name
			if isTaken(before, b.name) || isTaken(now, b.name) {
				p.ID = distinct(b.name, place)
			}
		}
		now = append(now, p)
	}
	current := slices.Clone(now)
	for _, b := range before {
		if atPlace(now, b.Place) != nil || isRetired(c, b.Place) {
			continue
		}
		b.State, b.Replaced = protocol.BrokerDraining, true
		if slices.ContainsFunc(current, func(p protocol.PlacedBroker) bool { return p.Name == b.Name }) {
			b.Name = distinct(b.Name, b.Place)
		}
		now = append(now, b)
	}
	return now
}

func atPlace(all []protocol.PlacedBroker, place string) *protocol.PlacedBroker {
	for i := range all {
		if all[i].Place == place {
			return &all[i]
		}
	}
	return nil
}

func isTaken(all []protocol.PlacedBroker, id string) bool {
	return slices.ContainsFunc(all, func(p protocol.PlacedBroker) bool { return p.ID == id })
}

func isRetired(c *protocol.Config, place string) bool {
	for _, b := range c.Brokers {
		if at, err := PlaceOf(b.Adapter); err == nil && b.State == protocol.BrokerRetired && at == place {
			return true
		}
	}
	return false
}

// distinct is a name that tells a place from another of that name.
func distinct(name, place string) string {
	h := fnv.New32a()
	h.Write([]byte(place))
	return fmt.Sprintf("%s-%06x", name, h.Sum32()&0xffffff)
}

// PlacementOf says what routers are to do about a configuration with these places.
func PlacementOf(c *protocol.Config, places []protocol.PlacedBroker) protocol.Placement {
	p := protocol.Placement{Brokers: places, Adapter: AdapterBuiltin, Routes: make([]protocol.Route, len(c.Routes))}
	ids := map[string]string{}
	for _, b := range places {
		if !b.Replaced {
			ids[b.Name] = b.ID
		}
	}
	if IsOutside(c.Adapter) {
		p.Adapter = ids[c.Adapter.Name]
	}
	for i, route := range c.Routes {
		p.Routes[i] = route
		if id := ids[route.Broker]; id != "" {
			p.Routes[i].Broker = id
		}
	}
	return p
}

// PlacementOfStored is what a stored configuration says; a registry of an earlier
// version says the adapter alone.
func PlacementOfStored(stored *protocol.StoredConfig) protocol.Placement {
	if stored.Placement.Adapter != "" {
		return stored.Placement
	}
	return PlacementOf(&stored.Config, Places(&stored.Config, nil))
}

// Routing says on which broker a queue is.
type Routing struct {
	adapter string
	routes  []routed
	marked  map[string]string // ids by the marks of the diagnosis
}

type routed struct {
	pattern *regexp.Regexp
	id      string
}

// NewRouting is that of a placement.
func NewRouting(p *protocol.Placement) (*Routing, error) {
	r := &Routing{adapter: p.Adapter, marked: make(map[string]string, len(p.Brokers))}
	for _, b := range p.Brokers {
		r.marked[scope.DiagnosisMark(b.ID)] = b.ID
	}
	for _, route := range p.Routes {
		if err := checkPattern(route.Pattern); err != nil {
			return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the pattern %.64q: %v", route.Pattern, err)
		}
		r.routes = append(r.routes, routed{compiled(route.Pattern), route.Broker})
	}
	return r, nil
}

// compiled is a pattern as an expression.
func compiled(pattern string) *regexp.Regexp {
	const many, one = `.*`, `[^/.]*`
	parts := strings.Split(pattern, "**")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, one)
	}
	return regexp.MustCompile("^" + strings.Join(parts, many) + "$")
}

// Of is the id of the broker that a queue of that ledger name is on; AdapterBuiltin:
// none, it is in the mesh. The queue of a subscriber is where its topic is. What the
// diagnosis tries says itself where it is to be.
func (r *Routing) Of(queue string) string {
	if scope.OfDiagnosis(queue) {
		execution, _, _ := strings.Cut(strings.TrimPrefix(queue, scope.QueuePrefix), "/")
		topic, _, _ := strings.Cut(execution, "::")
		return r.ofDiagnosis(topic)
	}
	if len(r.routes) == 0 {
		return r.adapter
	}
	if topic := scope.SubscribedTopic(queue); topic != "" {
		return r.OfTopic(topic)
	}
	return r.of(queue)
}

// OfTopic is that of a topic.
func (r *Routing) OfTopic(topic string) string {
	if scope.OfDiagnosis(topic) {
		return r.ofDiagnosis(topic)
	}
	return r.of("/topic/" + topic)
}

// ofDiagnosis is that of an execution or topic of the diagnosis.
func (r *Routing) ofDiagnosis(name string) string {
	return cmp.Or(r.marked[scope.DiagnosedMark(name)], AdapterBuiltin)
}

func (r *Routing) of(name string) string {
	for _, route := range r.routes {
		if route.pattern.MatchString(name) {
			return route.id
		}
	}
	return r.adapter
}
