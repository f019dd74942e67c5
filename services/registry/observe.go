package registry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// source puts what a subscription says by FunctionID and Args into the fields
// that stand for it, so that both ways to observe a topic are one from here on.
func source(spec *protocol.SubscriptionSpec) error {
	if spec.FunctionID == "" && spec.Args == nil {
		return checkTopic(spec)
	}
	if spec.FunctionID == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a subscription has args and no function_id: it is %s", protocol.FunctionOnMessage)
	}
	if spec.Kind != "" && spec.Kind != protocol.KindObserve {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a subscription with the function_id %s is of the kind %.64q: leave kind out", spec.FunctionID, spec.Kind)
	}
	if spec.Topic+spec.Group+spec.Route != "" || spec.MaxRetries != 0 || spec.BackoffMs != 0 || spec.QueueConfig != nil {
		return protocol.Errorf(protocol.CodeInvalidArgs, "a subscription with a function_id says topic, group, max_retries, backoff_ms and queue_config in its args: leave the fields of these names out")
	}
	spec.Kind = protocol.KindObserve
	if err := readArgs(spec); err != nil {
		return err
	}
	spec.FunctionID, spec.Args = "", nil
	return checkTopic(spec)
}

// checkTopic refuses a subscription to no topic: whoever asks for it has
// forgotten an argument, and not chosen a bad name.
func checkTopic(spec *protocol.SubscriptionSpec) error {
	if spec.Kind == protocol.KindObserve && strings.TrimSpace(spec.Topic) == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "an observer has no topic: name the one to consume (topic, or queue)")
	}
	return nil
}

// readArgs reads the args of FunctionOnMessage, or of a feed, which has its
// topic.
func readArgs(spec *protocol.SubscriptionSpec) error {
	args := map[string]json.RawMessage{}
	if spec.Args != nil {
		if err := json.Unmarshal(spec.Args, &args); err != nil || args == nil {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the args of %s are no JSON object", spec.FunctionID)
		}
	}
	a := arguments{given: args}
	if feed := feedTopics[spec.FunctionID]; feed != "" {
		spec.Topic = feed
	} else {
		a.read("topic", "queue", func(name string, v json.RawMessage) error { return into(name, v, &spec.Topic) })
	}
	a.read("group", "", func(name string, v json.RawMessage) error {
		if err := into(name, v, &spec.Group); err != nil {
			return err
		}
		return scope.CheckGroup(spec.Group)
	})
	a.read("max_retries", "maxRetries", func(name string, v json.RawMessage) error { return above0(name, v, &spec.MaxRetries) })
	a.read("backoff_ms", "backoffDelayMs", func(name string, v json.RawMessage) error { return above0(name, v, &spec.BackoffMs) })
	a.read("queue_config", "", func(_ string, v json.RawMessage) error { spec.QueueConfig = v; return nil })
	return cmp.Or(a.err, a.unknown(spec.FunctionID))
}

// arguments are those of an object that have not been read yet.
type arguments struct {
	given map[string]json.RawMessage
	err   error
}

// read reads an argument by its name or its alias. Null is as if it was left
// out, and both at once have to say the same.
func (a *arguments) read(name, alias string, set func(name string, v json.RawMessage) error) {
	v, other := a.take(name), a.take(alias)
	switch {
	case a.err != nil:
		return
	case v != nil && other != nil && !sameJSON(v, other):
		a.err = protocol.Errorf(protocol.CodeInvalidArgs, "%s is %.64s and %s, which means the same, is %.64s: give one of them", name, v, alias, other)
		return
	case v == nil:
		name, v = alias, other
	}
	if v != nil {
		a.err = set(name, v)
	}
}

func (a *arguments) take(name string) json.RawMessage {
	v := a.given[name]
	delete(a.given, name)
	if string(v) == "null" {
		return nil
	}
	return v
}

// unknown refuses what nobody has read.
func (a *arguments) unknown(function string) error {
	topic := "topic (or queue), "
	if feedTopics[function] != "" {
		topic = ""
	}
	for name := range a.given {
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s has no argument %.64q: %sgroup, max_retries (or maxRetries), backoff_ms (or backoffDelayMs) and queue_config are arguments", function, name, topic)
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

func into[T any](name string, v json.RawMessage, target *T) error {
	if json.Unmarshal(v, target) != nil {
		kind := "a string"
		if _, isText := any(target).(*string); !isText {
			kind = "a whole number"
		}
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s of %s is %.64s: it is %s", name, protocol.FunctionOnMessage, v, kind)
	}
	return nil
}

func above0[T int | int64](name string, v json.RawMessage, target *T) error {
	if err := into(name, v, target); err != nil {
		return err
	}
	if *target < 1 {
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s of %s is %.64s: it is at least 1", name, protocol.FunctionOnMessage, v)
	}
	return nil
}

// observe takes over what only observers have: what is filtered, and the
// function they are for.
func observe(spec *protocol.SubscriptionSpec, sub *protocol.Subscription, h *protocol.Hello) error {
	if sub.Kind != protocol.KindObserve {
		if spec.Target != nil || spec.Filters != nil || spec.QueueConfig != nil {
			return protocol.Errorf(protocol.CodeInvalidArgs, "target, filters and queue_config are for the kind %s, and the subscription of %s is of the kind %s", protocol.KindObserve, sub.Queue, sub.Kind)
		}
		return nil
	}
	var err error
	if sub.Filters, err = filters(spec, sub); err != nil {
		return err
	}
	if spec.Target == nil {
		return nil
	}
	target := protocol.FunctionSpec{Namespace: cmp.Or(spec.Target.Namespace, h.Namespace, protocol.DefaultNamespace), ID: spec.Target.ID}
	if err := checkFunction(target); err != nil {
		return err
	}
	sub.Target = &target
	sub.Inactive = !slices.ContainsFunc(h.Functions, func(f protocol.DeclaredFunction) bool { return f.FunctionSpec == target })
	sub.Draining = sub.Draining || sub.Inactive
	return nil
}

// checkSources refuses observers of functions that have none.
func (s *Service) checkSources(h *protocol.Hello) error {
	const can = protocol.FunctionOnMessage + ", " + protocol.FeedFunctions + " and " + protocol.FeedWorkers + " can be observed"
	for i := range h.Subscriptions {
		id := h.Subscriptions[i].FunctionID
		switch {
		case id == "" || id == protocol.FunctionOnMessage || feedTopics[id] != "":
		case id == protocol.FunctionOnEngineChange:
			return protocol.Errorf(protocol.CodeForbidden, "%s is private to the mesh: %s", id, can)
		case s.known.isServed(id):
			return protocol.Errorf(protocol.CodeUnsupported, "the function %.64q cannot be observed: %s", id, can)
		default:
			return protocol.Errorf(protocol.CodeFunctionNotFound, "nobody serves a function %.64q to observe: %s", id, can)
		}
	}
	return nil
}

// inactiveWarnings are for observers whose function their worker does not
// serve.
func inactiveWarnings(w *protocol.Worker) []string {
	var warnings []string
	for i := range w.Subscriptions {
		if sub := &w.Subscriptions[i]; sub.Inactive {
			warnings = append(warnings, fmt.Sprintf("%s: the observer of %s is for the function %s in namespace %s, which its worker does not serve: messages wait until it does",
				protocol.CodeObserverNotActive, sub.Queue, sub.Target.ID, sub.Target.Namespace))
		}
	}
	return warnings
}
