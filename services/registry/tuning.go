package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// queueConfig are the fields of a queue_config, each with its alias.
var queueConfig = [][2]string{
	{"type"}, {"maxRetries", "max_retries"}, {"concurrency"}, {"visibilityTimeout", "visibility_timeout"},
	{"delaySeconds", "delay_seconds"}, {"backoffType", "backoff_type"}, {"backoffDelayMs", "backoff_ms"},
	{"maxPriority", "max_priority"}, {"messageGroupField", "message_group_field"}, {"onDeadLetter", "on_dead_letter"},
}

// tune puts what an observer's queue_config says into the fields that stand
// for it, unless these say something themselves, and returns the rest.
func tune(spec *protocol.SubscriptionSpec) (protocol.Tuning, error) {
	t := protocol.Tuning{}
	if spec.QueueConfig == nil || spec.Kind != protocol.KindObserve {
		return t, nil
	}
	c := queueTuning{}
	if err := json.Unmarshal(spec.QueueConfig, &c.given); err != nil {
		return t, protocol.Errorf(protocol.CodeInvalidArgs, "queue_config is no JSON object")
	}
	kind := protocol.QueueType(c.word("type", string(protocol.TypeConcurrent), string(protocol.TypeStandard), string(protocol.TypeFIFO)))
	t.GroupField = c.text("messageGroupField")
	t.Serial = (spec.Type == "" || spec.Type == protocol.TypeFIFO) && kind == protocol.TypeFIFO && t.GroupField == ""
	t.BackoffType = protocol.BackoffType(c.word("backoffType", string(protocol.BackoffExponential), string(protocol.BackoffLinear), string(protocol.BackoffFixed)))
	if t.BackoffType == protocol.BackoffExponential {
		t.BackoffType = ""
	}
	t.DelayMs = c.seconds("delaySeconds", 0)
	t.VisibilityMs = c.seconds("visibilityTimeout", 1)
	retries, backoff := c.number("maxRetries", 1, protocol.MaxMaxRetries), c.number("backoffDelayMs", 1, maxMillis)
	concurrency, priority := c.number("concurrency", 0, protocol.MaxConcurrency), c.number("maxPriority", 1, math.MaxUint8)
	onDeadLetter := c.word("onDeadLetter", string(protocol.DeadLetterContinue), string(protocol.DeadLetterBlock), string(protocol.DeadLetterDivert))
	if err := cmp.Or(c.err, c.unknown()); err != nil {
		return t, err
	}
	spec.Type, spec.OnDeadLetter = cmp.Or(spec.Type, kind), cmp.Or(spec.OnDeadLetter, protocol.OnDeadLetter(onDeadLetter))
	spec.MaxRetries, spec.BackoffMs = cmp.Or(spec.MaxRetries, int(or0(retries))), cmp.Or(spec.BackoffMs, or0(backoff))
	spec.MaxPriority = cmp.Or(spec.MaxPriority, uint8(or0(priority)))
	if spec.Concurrency == nil && concurrency != nil && !t.Serial {
		n := int(*concurrency)
		spec.Concurrency = &n
	}
	return t, nil
}

func or0(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// queueTuning is a queue_config that is being read; the first error stays.
type queueTuning struct {
	given map[string]json.RawMessage
	err   error
}

// take takes a field by its name or its alias; nil if it is not there.
func (c *queueTuning) take(name string) json.RawMessage {
	i := slices.IndexFunc(queueConfig, func(field [2]string) bool { return field[0] == name })
	a := arguments{given: c.given, err: c.err}
	var value json.RawMessage
	a.read(name, queueConfig[i][1], func(_ string, v json.RawMessage) error {
		value = v
		return nil
	})
	c.err = a.err
	return value
}

// unknown refuses what nobody has read.
func (c *queueTuning) unknown() error {
	for name := range c.given {
		names := make([]string, len(queueConfig))
		for i, field := range queueConfig {
			names[i] = field[0]
		}
		return protocol.Errorf(protocol.CodeInvalidArgs, "queue_config has no field %.64q: there are %s", name, strings.Join(names, ", "))
	}
	return nil
}

// refuse notes that a field is not what it has to be.
func (c *queueTuning) refuse(name string, v json.RawMessage, what string) {
	c.err = cmp.Or(c.err, error(protocol.Errorf(protocol.CodeInvalidArgs, "queue_config.%s is %.64s: it is %s", name, v, what)))
}

func (c *queueTuning) text(name string) (s string) {
	v := c.take(name)
	if v != nil && (json.Unmarshal(v, &s) != nil || s == "" || len(s) > maxText) {
		c.refuse(name, v, fmt.Sprintf("a string of 1 to %d bytes", maxText))
	}
	return s
}

func (c *queueTuning) word(name string, words ...string) (s string) {
	v := c.take(name)
	if v != nil && (json.Unmarshal(v, &s) != nil || !slices.Contains(words, s)) {
		c.refuse(name, v, "one of "+strings.Join(words, ", "))
	}
	return s
}

// number reads a whole number; nil if it is not there.
func (c *queueTuning) number(name string, low, high int64) *int64 {
	v := c.take(name)
	if v == nil {
		return nil
	}
	var n int64
	if json.Unmarshal(v, &n) != nil || n < low || n > high {
		c.refuse(name, v, fmt.Sprintf("a whole number from %d to %d", low, high))
	}
	return &n
}

// seconds reads seconds as milliseconds, at least lowMs.
func (c *queueTuning) seconds(name string, lowMs int64) int64 {
	v := c.take(name)
	if v == nil {
		return 0
	}
	var s float64
	if json.Unmarshal(v, &s) != nil || s*1000 < float64(lowMs) || s*1000 > float64(maxMillis) {
		c.refuse(name, v, fmt.Sprintf("a number of seconds from %v to %d", float64(lowMs)/1000, maxMillis/1000))
		return 0
	}
	return int64(math.Round(s * 1000))
}

// sayTuning is what a policy says of a queue_config's own fields, for people.
func sayTuning(t protocol.Tuning) string {
	text := ""
	if t.BackoffType != "" {
		text = ", backoff_type " + string(t.BackoffType)
	}
	if t.DelayMs > 0 {
		text += fmt.Sprintf(", delay_ms %d", t.DelayMs)
	}
	if t.VisibilityMs > 0 {
		text += fmt.Sprintf(", visibility_ms %d", t.VisibilityMs)
	}
	if t.Serial {
		text += ", serial"
	}
	if t.GroupField != "" {
		text += fmt.Sprintf(", group_field %q", t.GroupField)
	}
	return text
}

// filters are an observer's filters as they are kept; nil if it wants
// everything.
func filters(spec *protocol.SubscriptionSpec, sub *protocol.Subscription) (json.RawMessage, error) {
	if spec.Filters == nil || string(spec.Filters) == "null" {
		return nil, nil
	}
	f, err := filter.Compile(spec.Filters)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidFilter, "the filter of the observer %s: %s", sub.Queue, protocol.AsError(err).Message)
	}
	if f.Everything() {
		return nil, nil
	}
	return f.MarshalJSON()
}
