package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/operate"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/router"
)

type brokerCmd struct {
	Ls           brokerLsCmd           `cmd:"" help:"List the brokers that messages are on: their states, what they hold, and what is routed to them."`
	Drain        brokerDrainCmd        `cmd:"" help:"Have a broker of the configuration take nothing new; what it holds is worked off."`
	Retire       brokerRetireCmd       `cmd:"" help:"Use a drained broker no more. It must be empty."`
	Capabilities brokerCapabilitiesCmd `cmd:"" help:"What each broker can do with a message, without a mesh. What one cannot is refused, with UNSUPPORTED."`
}

// countTime is how long it may take to look at what brokers hold.
const countTime = 30 * time.Second

type brokerLsCmd struct {
	watching
}

func (c *brokerLsCmd) Run(a *app) error { return c.watching.run(a, c.list) }

func (*brokerLsCmd) list(a *app) error {
	all, err := brokers(a, true)
	if err != nil {
		return err
	}
	return a.show(all, func() {
		g := newGrid("BROKER", "KIND", "STATE", "READY", "WAITING", "IN FLIGHT", "DEAD", "ROUTES", "AWAY", "AT")
		for i := range all {
			b := &all[i]
			ready, waiting, inFlight, dead := any("-"), any("-"), any("-"), any("-")
			if b.Counted {
				ready, waiting, inFlight, dead = b.Ready, b.Waiting, b.InFlight, b.Dead
			}
			g.row(b.Name, b.Kind, stateOf(b), ready, waiting, inFlight, dead, orDash(strings.Join(b.Routes, " ")), awaySince(b), orDash(b.Place))
		}
		g.write(a.stdout)
		for i := range all {
			if all[i].Away != "" {
				a.sayf("%s: %s", all[i].Name, printable(all[i].Away))
			}
		}
	})
}

func brokers(a *app, count bool) ([]protocol.BrokerInfo, error) {
	return operatedWithin(a, countTime, func(ctx context.Context, nc *nats.Conn) ([]protocol.BrokerInfo, error) {
		return operate.Brokers(ctx, nc, count)
	})
}

func stateOf(b *protocol.BrokerInfo) string {
	if b.Replaced {
		return string(b.State) + ", replaced"
	}
	return string(b.State)
}

func awaySince(b *protocol.BrokerInfo) string {
	switch {
	case b.Away == "":
		return "-"
	case b.Since.IsZero():
		return "yes"
	}
	return ago(b.Since)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

type brokerDrainCmd struct {
	Broker string `arg:"" help:"Its name in the configuration."`
}

func (c *brokerDrainCmd) Run(a *app) error {
	return changeBroker(a, c.Broker, protocol.BrokerDraining, nil)
}

type brokerRetireCmd struct {
	Broker string `arg:"" help:"Its name, as broker ls has it."`
	Force  bool   `help:"Leave behind what it holds, also if it cannot be looked at."`
}

func (c *brokerRetireCmd) Run(a *app) error {
	var abandon []string
	if c.Force {
		abandon = []string{c.Broker}
	}
	return changeBroker(a, c.Broker, protocol.BrokerRetired, abandon)
}

// changeBroker edits the state of a broker. One that the configuration does not name
// any more can be abandoned.
func changeBroker(a *app, name string, state protocol.BrokerState, abandon []string) error {
	all, err := brokers(a, false)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(b protocol.BrokerInfo) bool { return b.Name == name })
	edit := protocol.ConfigEdit{Change: json.RawMessage("{}"), Abandon: abandon, By: whoAmI()}
	switch {
	case i < 0:
		return protocol.Errorf(protocol.CodeNotFound, "no broker is called %.64q\n  next: %s lists those there are", name, command(a.flags.NATS, "broker ls"))
	case !all[i].Replaced && name == all[i].Kind:
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s is the adapter: another one in its place (waybill config apply) has it worked off and retired", name)
	case all[i].Replaced && abandon == nil:
		return protocol.Errorf(protocol.CodeConflict, "%s was replaced: it is worked off already, and retired when it is empty; --force retires it now", name)
	case all[i].Replaced:
	case state == protocol.BrokerDraining && len(all[i].Routes) > 0:
		return protocol.Errorf(protocol.CodeConflict, "routes lead to %s, which is to take nothing new: %s\n  next: have them lead elsewhere, or take them out, with waybill config apply", name, strings.Join(all[i].Routes, " "))
	default:
		if edit.Change, err = json.Marshal(map[string]any{"brokers": map[string]any{name: map[string]any{"state": state}}}); err != nil {
			return err
		}
	}
	edited, err := editConfig(a, edit)
	if err != nil {
		return err
	}
	return a.show(edited, func() {
		for _, text := range edited.Warnings {
			a.hintf("%s", text)
		}
		a.sayf("%s is %s, as revision %d", name, state, edited.Revision)
	})
}

type brokerCapabilitiesCmd struct {
	Broker string `arg:"" optional:"" help:"One broker; default all."`
}

func (c *brokerCapabilitiesCmd) Run(a *app) error {
	brokers, err := c.chosen()
	if err != nil {
		return err
	}
	return a.show(brokers, func() {
		g := newGrid("BROKER", "CAPABILITY", "VALUE", "MEANS")
		for _, b := range brokers {
			for _, capability := range b.Capabilities {
				g.row(b.Name, capability.Name, capability.Value, capability.Text)
			}
		}
		g.write(a.stdout)
	})
}

func (c *brokerCapabilitiesCmd) chosen() ([]router.KnownBroker, error) {
	known := router.KnownBrokers()
	if c.Broker == "" {
		return known, nil
	}
	names := make([]string, 0, len(known))
	for _, b := range known {
		if b.Name == c.Broker {
			return []router.KnownBroker{b}, nil
		}
		names = append(names, b.Name)
	}
	return nil, protocol.Errorf(protocol.CodeNotFound, "this build has no broker %.64q: it has %s", c.Broker, strings.Join(names, ", "))
}
