package registry

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	// editTime is how long an edit may take: who asks waits about as long.
	editTime     = 28 * time.Second
	prepareTime  = 8 * time.Second // for the first router that gets ready
	prepareStall = time.Second     // for another
	countTime    = 30 * time.Second
	countStall   = 5 * time.Second
	retireEvery  = time.Second
	retireMost   = 10 * time.Second // between two looks at a broker that is not empty
)

// placement is what the configuration means for routers.
func (c *configState) placement() protocol.Placement {
	p := config.PlacementOf(c.config(), c.places)
	p.Number = c.doc.Placed
	return p
}

// settings are those of the configuration.
func (c *configState) settings() protocol.Settings {
	settings := c.config().Settings(c.doc.revision)
	settings.Placed = c.doc.Placed
	return settings
}

// kindOf is the kind of the broker that a queue is on.
func (c *configState) kindOf(queue string) string {
	p := c.placement()
	routing, err := config.NewRouting(&p)
	if err != nil {
		return protocol.BrokerBuiltin
	}
	id := routing.Of(queue)
	for _, b := range p.Brokers {
		if b.ID == id {
			return b.Adapter.Name
		}
	}
	return protocol.BrokerBuiltin
}

// idsOf are the ids of brokers by their names.
func (c *configState) idsOf(names []string) (ids []string) {
	for _, b := range c.places {
		if slices.Contains(names, b.Name) {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// placedAfter takes note of the brokers that a configuration has after another, without
// those that are to be left.
func (c *configState) placedAfter(before *configState, left []string) {
	c.places = slices.DeleteFunc(config.Places(c.config(), before.places), func(b protocol.PlacedBroker) bool {
		return b.Replaced && slices.Contains(left, b.ID)
	})
	c.doc.Brokers, c.doc.Placed = c.places, before.doc.Placed
	if moves(before, c) {
		c.doc.Placed++
	}
}

// moves says whether an edit changes where messages are.
func moves(before, after *configState) bool {
	was, is := config.PlacementOf(before.config(), before.places), config.PlacementOf(after.config(), after.places)
	return !reflect.DeepEqual(was, is)
}

// checkBrokers has every router get ready for where an edit moves messages: one
// that cannot reach a broker refuses it. What is retired has to be empty.
func (s *Service) checkBrokers(ctx context.Context, before, after *configState, abandon []string) error {
	if err := s.checkRetired(ctx, before, after, abandon); err != nil {
		return err
	}
	if !moves(before, after) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	same, err := s.prepareRouters(ctx, after)
	if err != nil || len(same) == 0 {
		return err
	}
	if err := after.unite(before, same); err != nil {
		return err
	}
	_, err = s.prepareRouters(ctx, after)
	return err
}

// prepareRouters has every router connect to the brokers of a configuration, and says
// which of them are one.
func (s *Service) prepareRouters(ctx context.Context, after *configState) (same []protocol.SameBroker, err error) {
	routers, err := mesh.Gather[protocol.Ready](ctx, s.nc, protocol.SubjectReady, protocol.Empty{}, 0)
	if err != nil {
		return nil, err
	}
	routers = slices.DeleteFunc(routers, func(r protocol.Ready) bool { return r.Service != "router" })
	prepared, err := mesh.GatherUntil(ctx, s.nc, protocol.SubjectPrepare, after.placement(), prepareStall,
		func(all []protocol.Prepared) bool { return len(all) >= len(routers) })
	if err != nil {
		e := protocol.AsError(err)
		return nil, protocol.Errorf(e.Code, "a router cannot use the brokers so, and nothing was changed: %s", e.Message)
	}
	for _, r := range routers {
		i := slices.IndexFunc(prepared, func(p protocol.Prepared) bool { return p.Instance == r.Instance })
		if i < 0 {
			return nil, protocol.Errorf(protocol.CodeUnavailable, "the router %s does not say whether it can use the brokers so, and nothing was changed: it is starting, or of an earlier version", r.Instance)
		}
		same = append(same, prepared[i].Same...)
	}
	return same, nil
}

// unite has a broker that is new by its address alone be the one that it is. Two entries
// for one broker are refused: each would take the other's queues for its own.
func (c *configState) unite(before *configState, same []protocol.SameBroker) error {
	for _, pair := range same {
		a, b := c.at(pair.ID), c.at(pair.Other)
		if a == nil || b == nil || a.Replaced && b.Replaced {
			continue // they are united, or left together
		}
		if !a.Replaced && !b.Replaced {
			return protocol.Errorf(protocol.CodeConflict, "%s (%s) and %s (%s) are one and the same broker: name it once", a.Name, a.Place, b.Name, b.Place)
		}
		is, was := a, b
		if a.Replaced {
			is, was = b, a
		}
		if !config.SameNames(is.Adapter, was.Adapter) {
			return protocol.Errorf(protocol.CodeConflict,
				"%s (%s) is the broker that was at %s, whose queues keep the prefix they were made with: leave it as it is, or move the messages elsewhere and retire the broker first", is.Name, is.Place, was.Place)
		}
		if before.at(is.ID) == nil {
			id := was.ID
			c.places = slices.DeleteFunc(c.places, func(p protocol.PlacedBroker) bool { return p.ID == id })
			c.at(is.ID).ID = id
			c.doc.Brokers = c.places
		}
	}
	return nil
}

// at is a broker by its id; nil: there is none.
func (c *configState) at(id string) *protocol.PlacedBroker {
	for i := range c.places {
		if c.places[i].ID == id {
			return &c.places[i]
		}
	}
	return nil
}

// checkRetired refuses to leave behind what nobody has said may be.
func (s *Service) checkRetired(ctx context.Context, before, after *configState, abandon []string) error {
	for _, name := range abandon {
		if !slices.ContainsFunc(before.places, func(b protocol.PlacedBroker) bool { return b.Name == name }) {
			return protocol.Errorf(protocol.CodeNotFound, "no broker is called %.64q: waybill broker ls lists those there are", name)
		}
	}
	for _, b := range before.places {
		kept := slices.ContainsFunc(after.places, func(a protocol.PlacedBroker) bool { return a.ID == b.ID })
		if kept || slices.Contains(abandon, b.Name) {
			continue
		}
		if b.State != protocol.BrokerDraining {
			return protocol.Errorf(protocol.CodeConflict, "the broker %s is %s: make it draining, and retire it when it is empty", b.Name, b.State)
		}
		if left, err := s.remains(ctx, b.ID, before.doc.Placed); left != "" || err != nil {
			if err != nil {
				left = protocol.AsError(err).Message
			}
			return protocol.Errorf(protocol.CodeConflict, "the broker %s cannot be retired: %s; wait until it is empty (waybill broker ls), or leave behind what it has (waybill broker retire %s --force)", b.Name, left, b.Name)
		}
	}
	return nil
}

// remains says what a broker still holds of all lanes; "": nothing, for certain.
func (s *Service) remains(ctx context.Context, id string, placed uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	pages, err := mesh.GatherUntil(ctx, s.nc, protocol.SubjectBrokers, protocol.BrokersRequest{Count: true, ID: id}, countStall, protocol.AllLanes)
	if err != nil {
		return "", err
	}
	var sum protocol.BrokerInfo
	for _, page := range pages {
		if page.Number < placed {
			return "the router " + page.Instance + " does not work by the last configuration yet", nil
		}
		for _, b := range page.Brokers {
			if b.Away != "" || !b.Counted {
				return "it cannot be looked at (" + b.Away + ")", nil
			}
			sum.Ready, sum.Waiting, sum.InFlight, sum.Dead = sum.Ready+b.Ready, sum.Waiting+b.Waiting, sum.InFlight+b.InFlight, sum.Dead+b.Dead
			sum.Busy += b.Busy
		}
	}
	switch {
	case sum.Holds() > 0:
		return fmt.Sprintf("it holds %d ready, %d waiting, %d in flight and %d dead messages", sum.Ready, sum.Waiting, sum.InFlight, sum.Dead), nil
	case sum.Busy > 0:
		return "its queues have not left their topics yet, which takes some seconds", nil
	case !protocol.AllLanes(pages):
		return "some lanes have no router at the moment", nil
	}
	return "", nil
}

// retireReplaced retires brokers that the configuration does not name any more once
// they are empty, and were when they were looked at before.
func (s *Service) retireReplaced(ctx context.Context) {
	wait := retireEvery
	empty := map[string]bool{}
	for mesh.Pause(ctx, wait) {
		wait = min(2*wait, retireMost)
		now := s.configuration.state()
		for _, b := range now.places {
			if !b.Replaced {
				continue
			}
			left, err := s.remains(ctx, b.ID, now.doc.Placed)
			was := empty[b.ID]
			empty[b.ID] = err == nil && left == ""
			if !empty[b.ID] {
				continue
			}
			wait = retireEvery
			if was {
				s.retire(ctx, b)
			}
		}
		if !slices.ContainsFunc(now.places, func(b protocol.PlacedBroker) bool { return b.Replaced }) {
			wait = retireEvery
		}
	}
}

func (s *Service) retire(ctx context.Context, b protocol.PlacedBroker) {
	_, err := s.editConfig(ctx, configEdit{by: "waybill", left: []string{b.ID}, change: func(now *configState) (config.Document, error) { return now.doc.set, nil }})
	if err != nil {
		s.log.Warn("an empty broker is not retired yet", "broker", b.Name, "error", err)
		return
	}
	s.log.Info("a broker that nothing names any more is empty, and retired", "broker", b.Name, "place", b.Place)
}

// brokerWarnings say what an edit of the brokers does by itself.
func brokerWarnings(edit *configEdited) (warnings []string) {
	for _, b := range edit.after.places {
		was := slices.ContainsFunc(edit.before.places, func(p protocol.PlacedBroker) bool { return p.ID == b.ID && p.Replaced })
		if b.Replaced && !was {
			warnings = append(warnings, fmt.Sprintf("the broker at %s takes nothing new; it is worked off as %s, and retired when it is empty (waybill broker ls)", b.Place, b.Name))
		}
	}
	return warnings
}
