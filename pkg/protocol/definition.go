package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// QueueDefinition says how the jobs of a named queue are handled. All numbers
// hold for the queue in the whole mesh.
type QueueDefinition struct {
	// Type is TypeStandard or TypeFIFO, which handles the jobs of one group in
	// order, one at a time.
	Type QueueType `json:"type"`
	// MessageGroupField is the member of a job's data that names its group, of
	// TypeFIFO: a non-empty string or a number.
	MessageGroupField string `json:"message_group_field,omitempty"`
	Concurrency       int    `json:"concurrency"` // jobs at once
	MaxRetries        int    `json:"max_retries"` // failed deliveries before the dead letter
	BackoffMs         int64  `json:"backoff_ms"`  // before the second attempt; it doubles
	TimeoutMs         int64  `json:"timeout_ms"`  // of one attempt
	// MaxPriority makes the queue one with priorities, 1 to 255; 0: it has none.
	// It cannot be changed.
	MaxPriority int `json:"max_priority,omitempty"`
	// PriorityField is the member of a job's data that is its priority: a whole
	// number from 0 on, what is above 255 counting as that.
	PriorityField string `json:"priority_field,omitempty"`
	// PollIntervalMs and RedeliverOnEngineRestart are accepted and have no
	// effect: nothing is polled, and what a restart interrupted always comes
	// again.
	PollIntervalMs           int64 `json:"poll_interval_ms,omitempty"`
	RedeliverOnEngineRestart bool  `json:"redeliver_on_engine_restart,omitempty"`
	// OnDeadLetter is for TypeFIFO; default DeadLetterContinue.
	OnDeadLetter OnDeadLetter `json:"on_dead_letter,omitempty"`
}

// DefaultQueueDefinition is that of a queue of whose definition everything is
// left out.
func DefaultQueueDefinition() QueueDefinition {
	return QueueDefinition{
		Type: TypeStandard, Concurrency: DefaultConcurrency,
		MaxRetries: DefaultMaxRetries, BackoffMs: DefaultBackoffMs, TimeoutMs: DefaultTimeoutMs,
	}
}

// UnmarshalJSON reads what another version may have written: what is left out is
// the default, and what is not known is passed over.
func (d *QueueDefinition) UnmarshalJSON(b []byte) error {
	type plain QueueDefinition
	p := plain(DefaultQueueDefinition())
	err := json.Unmarshal(b, &p)
	*d = QueueDefinition(p)
	return err
}

// definitionFields are what each field is read into.
var definitionFields = map[string]func(d *QueueDefinition) any{
	"type":                        func(d *QueueDefinition) any { return &d.Type },
	"message_group_field":         func(d *QueueDefinition) any { return &d.MessageGroupField },
	"concurrency":                 func(d *QueueDefinition) any { return &d.Concurrency },
	"max_retries":                 func(d *QueueDefinition) any { return &d.MaxRetries },
	"backoff_ms":                  func(d *QueueDefinition) any { return &d.BackoffMs },
	"timeout_ms":                  func(d *QueueDefinition) any { return &d.TimeoutMs },
	"max_priority":                func(d *QueueDefinition) any { return &d.MaxPriority },
	"priority_field":              func(d *QueueDefinition) any { return &d.PriorityField },
	"poll_interval_ms":            func(d *QueueDefinition) any { return &d.PollIntervalMs },
	"redeliver_on_engine_restart": func(d *QueueDefinition) any { return &d.RedeliverOnEngineRestart },
	"on_dead_letter":              func(d *QueueDefinition) any { return &d.OnDeadLetter },
}

// ParseQueueDefinition reads a definition that somebody has written, a JSON
// object; what is left out or null is the default. INVALID_ARGS names the field
// that is not known or not what it has to be.
func ParseQueueDefinition(b []byte) (QueueDefinition, error) {
	d := DefaultQueueDefinition()
	if len(b) == 0 {
		return d, nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(b, &given); err != nil {
		return d, Errorf(CodeInvalidArgs, "the definition of a queue is %.64s: it is a JSON object", b)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field := definitionFields[name]
		if field == nil {
			return d, Errorf(CodeInvalidArgs, "the definition of a queue has no field %.64q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(definitionFields)), ", "))
		}
		if err := d.read(name, given[name], field(&d)); err != nil {
			return d, err
		}
	}
	err := d.Validate()
	return d, err
}

func (d *QueueDefinition) read(name string, value json.RawMessage, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return definitionError(name, string(value), d.allowed(name))
	}
	if text, isText := into.(*string); isText && *text == "" && string(value) != "null" {
		return definitionError(name, string(value), d.allowed(name))
	}
	return nil
}

// allowed is what a field may be, for people.
func (*QueueDefinition) allowed(name string) string {
	switch name {
	case "type":
		return fmt.Sprintf("%s or %s", TypeStandard, TypeFIFO)
	case "on_dead_letter":
		return fmt.Sprintf("%s, %s or %s", DeadLetterContinue, DeadLetterBlock, DeadLetterDivert)
	case "redeliver_on_engine_restart":
		return "true or false"
	case "message_group_field", "priority_field":
		return fmt.Sprintf("the name of a member of the jobs' data, 1 to %d bytes", MaxGroup)
	}
	low, high := definitionRange(name)
	return fmt.Sprintf("a whole number from %d to %d", low, high)
}

// definitionRange are the bounds of a number.
func definitionRange(name string) (low, high int64) {
	switch name {
	case "concurrency":
		return 1, MaxConcurrency
	case "max_retries":
		return 1, MaxMaxRetries
	case "max_priority":
		return 0, math.MaxUint8
	case "timeout_ms":
		return 1, maxSettingMs
	case "backoff_ms":
		return 1, maxSettingMs
	default:
		return 0, maxSettingMs
	}
}

func definitionError(name, value, allowed string) error {
	return Errorf(CodeInvalidArgs, "%s of a queue is %.64s: it is %s", name, value, allowed)
}

// Validate refuses what no queue can be: INVALID_ARGS, naming the field and what
// it may be.
func (d *QueueDefinition) Validate() error {
	if d.Type != TypeStandard && d.Type != TypeFIFO {
		return definitionError("type", fmt.Sprintf("%q", d.Type), d.allowed("type"))
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"concurrency", int64(d.Concurrency)}, {"max_retries", int64(d.MaxRetries)}, {"backoff_ms", d.BackoffMs},
		{"timeout_ms", d.TimeoutMs}, {"max_priority", int64(d.MaxPriority)}, {"poll_interval_ms", d.PollIntervalMs},
	} {
		if low, high := definitionRange(n.name); n.value < low || n.value > high {
			return definitionError(n.name, strconv.FormatInt(n.value, 10), d.allowed(n.name))
		}
	}
	for name, field := range map[string]string{"message_group_field": d.MessageGroupField, "priority_field": d.PriorityField} {
		if len(field) > MaxGroup || strings.TrimSpace(field) != field {
			return definitionError(name, fmt.Sprintf("%.64q", field), d.allowed(name))
		}
	}
	if d.Type == TypeFIFO && d.MessageGroupField == "" {
		return Errorf(CodeInvalidArgs, "message_group_field of a queue is missing: a queue of the type %s needs it, the member of the jobs' data that names their group", TypeFIFO)
	}
	return d.validateOnDeadLetter()
}

func (d *QueueDefinition) validateOnDeadLetter() error {
	switch d.OnDeadLetter {
	case "", DeadLetterContinue:
		return nil
	case DeadLetterBlock, DeadLetterDivert:
		if d.Type == TypeFIFO {
			return nil
		}
		return Errorf(CodeInvalidArgs, "on_dead_letter of a queue is %q, which is for the type %s: only there does a group wait for anything", d.OnDeadLetter, TypeFIFO)
	default:
		return definitionError("on_dead_letter", fmt.Sprintf("%.64q", d.OnDeadLetter), d.allowed("on_dead_letter"))
	}
}

// Warnings are for people, about fields that have no effect.
func (d *QueueDefinition) Warnings() []string {
	var all []string
	for _, w := range []struct {
		is   bool
		text string
	}{
		{d.PollIntervalMs > 0, "poll_interval_ms has no effect: nothing is polled, jobs are delivered when they come and retries when they are due"},
		{d.RedeliverOnEngineRestart, "redeliver_on_engine_restart has no effect: what a restart interrupted always comes again, and costs no try"},
		{d.Type != TypeFIFO && d.MessageGroupField != "", "message_group_field has no effect: only a queue of the type fifo has groups"},
		{d.Type == TypeFIFO && d.MaxPriority > 0, "max_priority has no effect: a queue of the type fifo keeps the order of enqueueing"},
		{d.MaxPriority == 0 && d.PriorityField != "", "priority_field has no effect: a queue has priorities if max_priority is 1 to 255"},
	} {
		if w.is {
			all = append(all, w.text)
		}
	}
	return all
}
