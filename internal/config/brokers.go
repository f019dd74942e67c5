package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

func brokerKeys() []Key {
	return []Key{{
		Name: "state", Default: string(protocol.BrokerActive), Allowed: []string{string(protocol.BrokerActive), string(protocol.BrokerDraining), string(protocol.BrokerRetired)},
		Doc: "active; draining takes nothing new and is worked off; retired is not used any more, and must be empty.",
	}}
}

func routeKeys() []Key {
	return []Key{
		{Name: "pattern", Required: true, Check: checkPattern, Doc: "/queue/EXECUTION/ROUTE, /topic/TOPIC or /jobs/QUEUE; * is anything but / and ., ** anything."},
		{Name: "broker", Required: true, Check: NotEmpty, Doc: "One of brokers, the adapter's name, or builtin."},
	}
}

var brokerName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// checkBrokerName keeps the kinds' names for the adapter, whose name is its kind.
func checkBrokerName(name string) error {
	if !brokerName.MatchString(name) {
		return errors.New("a broker's name is 1 to 32 lower-case letters, digits and -, and begins with a letter")
	}
	if _, known := adapterKey().resolved(name); known {
		return fmt.Errorf("%s is what an adapter is called: give the broker another name", name)
	}
	return nil
}

var routePattern = regexp.MustCompile(`^/[A-Za-z0-9_:./*-]+$`)

func checkPattern(text string) error {
	if !routePattern.MatchString(text) {
		return errors.New("it is a pattern such as /queue/orders-*/**, /topic/orders.* or /jobs/mail")
	}
	first, _, _ := strings.Cut(text[1:], "/")
	if !strings.Contains(first, "*") && !slices.Contains([]string{"queue", "topic", "jobs"}, first) {
		return errors.New("it begins with /queue/, /topic/ or /jobs/")
	}
	return nil
}

// checkBrokers looks at what adapter, brokers and routes say between them.
func (r *Result) checkBrokers() {
	at := map[string]string{} // keys by place
	for _, b := range configured(&r.Config) {
		if r.refused(b.key) {
			continue
		}
		place, err := PlaceOf(b.Adapter)
		if err != nil {
			r.Problems = append(r.Problems, Problem{Key: b.key, Text: textOf(err)})
			continue
		}
		if other, taken := at[place]; taken {
			r.Problems = append(r.Problems, Problem{Key: join(b.key, choiceConfig), Text: "its messages are where those of " + other + " are: name one broker once"})
		}
		at[place] = b.key
	}
	for i := range r.Config.Routes {
		if key := join("routes", strconv.Itoa(i)); !r.refused(key) {
			r.checkRoute(key, r.Config.Routes[i])
		}
	}
}

func (r *Result) checkRoute(key string, route protocol.Route) {
	b, known := r.Config.Brokers[route.Broker]
	switch {
	case route.Broker == AdapterBuiltin, route.Broker == r.Config.Adapter.Name:
	case !known:
		names := append([]string{AdapterBuiltin}, slices.Sorted(maps.Keys(r.Config.Brokers))...)
		if IsOutside(r.Config.Adapter) {
			names = slices.Insert(names, 1, r.Config.Adapter.Name)
		}
		r.Problems = append(r.Problems, Problem{Key: join(key, "broker"), Text: fmt.Sprintf("no broker is called %.64q: it is %s", route.Broker, oneOf(names))})
	case b.State != protocol.BrokerActive:
		r.Problems = append(r.Problems, Problem{Key: join(key, "broker"), Text: fmt.Sprintf("%s is %s, and takes nothing new: name another, or make it active", route.Broker, b.State)})
	}
}

// checkQueues refuses named queues on brokers that have none. That there is a default
// one nobody has asked for.
func (r *Result) checkQueues() {
	places := Places(&r.Config, nil)
	placement := PlacementOf(&r.Config, places)
	routing, err := NewRouting(&placement)
	if err != nil {
		return // a route is refused
	}
	for _, name := range slices.Sorted(maps.Keys(r.Config.QueueConfigs)) {
		if name == protocol.DefaultQueue && r.Config.QueueConfigs[name] == protocol.DefaultQueueDefinition() {
			continue
		}
		id := routing.Of(scope.JobsQueue(name))
		for _, b := range places {
			if b.ID == id && IsTopicsOnly(b.Adapter.Name) {
				r.Problems = append(r.Problems, Problem{Key: join("queue_configs", name), Unsupported: true, Text: fmt.Sprintf(
					"unsupported: the broker %s (%s) has topics only and no named queues: have a route lead /jobs/%s to another broker, or take the queue out", b.Name, b.Adapter.Name, name)})
			}
		}
	}
}

// configuredBroker is a broker outside of the mesh that a configuration names.
type configuredBroker struct {
	protocol.Broker

	name, key string
}

// configured are those that are not retired, the adapter first.
func configured(c *protocol.Config) []configuredBroker {
	var all []configuredBroker
	if IsOutside(c.Adapter) {
		all = append(all, configuredBroker{protocol.Broker{Adapter: c.Adapter, State: protocol.BrokerActive}, c.Adapter.Name, "adapter"})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Brokers)) {
		if b := c.Brokers[name]; b.State != protocol.BrokerRetired {
			all = append(all, configuredBroker{b, name, join("brokers", name)})
		}
	}
	return all
}
