package registry

import (
	"fmt"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// order takes over in what order a subscription wants its queue's messages. A
// default is the empty word in the record.
func order(spec *protocol.SubscriptionSpec, sub *protocol.Subscription) error {
	switch spec.Type {
	case "", protocol.TypeConcurrent, protocol.TypeStandard:
	case protocol.TypeFIFO:
		sub.Type = protocol.TypeFIFO
	default:
		return protocol.Errorf(protocol.CodeInvalidArgs, "type of a subscription of %s is %.64q: %s (or %s) and %s are types",
			sub.Queue, spec.Type, protocol.TypeConcurrent, protocol.TypeStandard, protocol.TypeFIFO)
	}
	switch spec.OnDeadLetter {
	case "", protocol.DeadLetterContinue:
	case protocol.DeadLetterBlock, protocol.DeadLetterDivert:
		if sub.Type != protocol.TypeFIFO {
			return protocol.Errorf(protocol.CodeInvalidArgs, "on_dead_letter of a subscription of %s is %s, which is for the type %s: only there does a group wait for anything",
				sub.Queue, spec.OnDeadLetter, protocol.TypeFIFO)
		}
		sub.OnDeadLetter = spec.OnDeadLetter
	default:
		return protocol.Errorf(protocol.CodeInvalidArgs, "on_dead_letter of a subscription of %s is %.64q: it is %s, %s or %s",
			sub.Queue, spec.OnDeadLetter, protocol.DeadLetterContinue, protocol.DeadLetterBlock, protocol.DeadLetterDivert)
	}
	sub.MaxPriority = spec.MaxPriority
	return nil
}

// orderWarnings are for what a worker asks for and does not get.
func orderWarnings(w *protocol.Worker) []string {
	var warnings []string
	for i := range w.Subscriptions {
		sub := &w.Subscriptions[i]
		if sub.Type == protocol.TypeFIFO && sub.MaxPriority > 0 {
			warnings = append(warnings, fmt.Sprintf("%s asks for max_priority %d on %s, which is ignored: a queue of the type %s keeps the order of publishing", sub.Name, sub.MaxPriority, sub.Queue, protocol.TypeFIFO))
		}
		if sub.Type != protocol.TypeFIFO && sub.GroupField != "" {
			warnings = append(warnings, fmt.Sprintf("%s asks for message_group_field %q on %s, which has no effect: only a queue of the type %s has groups", sub.Name, sub.GroupField, sub.Queue, protocol.TypeFIFO))
		}
		if sub.VisibilityMs >= sub.TimeoutMs {
			warnings = append(warnings, fmt.Sprintf("%s asks for a visibilityTimeout of %d ms on %s, which has no effect: a delivery has %d ms anyway", sub.Name, sub.VisibilityMs, sub.Queue, sub.TimeoutMs))
		}
	}
	return warnings
}

// sayOrder is what a policy says of order, for people.
func sayOrder(p protocol.Policy) string {
	text := ""
	if p.Type != "" {
		text = ", type " + string(p.Type)
	}
	if p.OnDeadLetter != "" {
		text += ", on_dead_letter " + string(p.OnDeadLetter)
	}
	if p.MaxPriority > 0 {
		text += fmt.Sprintf(", max_priority %d", p.MaxPriority)
	}
	return text + sayTuning(p.Tuning)
}
