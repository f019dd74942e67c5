package client

import (
	"encoding/json"
	"time"

	"github.com/waybill-mq/waybill/pkg/filter"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// queueConfig is what an observer's queue is tuned with beyond the fields that
// every subscription has.
type queueConfig struct {
	Type              protocol.QueueType   `json:"type,omitempty"`
	GroupField        string               `json:"message_group_field,omitempty"`
	BackoffType       protocol.BackoffType `json:"backoff_type,omitempty"`
	DelaySeconds      float64              `json:"delay_seconds,omitempty"`
	VisibilityTimeout float64              `json:"visibility_timeout,omitempty"`
}

// raw is it on the wire, nil if it says nothing.
func (c queueConfig) raw() json.RawMessage {
	if c == (queueConfig{}) {
		return nil
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil // it has no field that could fail
	}
	return b
}

// Filter says which messages an observer wants, in the language of package
// filter: the others are acknowledged unseen. Default all.
func Filter(f string) WorkOption {
	return workFunc(func(o *workOptions) error {
		compiled, err := filter.Compile([]byte(f))
		if err != nil || compiled.Everything() {
			return err
		}
		o.filters, err = compiled.MarshalJSON()
		return err
	})
}

// Serial handles all messages of an observer's queue one after the other, in
// the order of publishing, whatever groups their publishers name. Like FIFO it
// keeps the place of one that fails.
func Serial() WorkOption {
	return workFunc(func(o *workOptions) error {
		o.kind, o.config.Type = protocol.TypeFIFO, protocol.TypeFIFO
		return nil
	})
}

// GroupField is FIFO for an observer, with the group of a message named by a
// member of its payload, which is a JSON object. A message that has no non-empty
// string or number there is in the group that its publisher names.
func GroupField(name string) WorkOption {
	return workFunc(func(o *workOptions) error {
		if name == "" {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the field that names the group is empty: leave client.GroupField out, or use FIFO or Serial")
		}
		o.kind, o.config.GroupField = protocol.TypeFIFO, name
		return nil
	})
}

// BackoffGrows says how the delay between an observer's tries grows from
// Backoff on. Default protocol.BackoffExponential.
func BackoffGrows(how protocol.BackoffType) WorkOption {
	return workFunc(func(o *workOptions) error {
		switch how {
		case protocol.BackoffExponential, protocol.BackoffLinear, protocol.BackoffFixed:
			o.config.BackoffType = how
			return nil
		default:
			return protocol.Errorf(protocol.CodeInvalidArgs, "the backoff type is %.64q: it is %s, %s or %s", how,
				protocol.BackoffExponential, protocol.BackoffLinear, protocol.BackoffFixed)
		}
	})
}

// FirstDelay puts an observer's first delivery of each message off until so
// long after its publish. Default 0; whole milliseconds.
func FirstDelay(d time.Duration) WorkOption {
	return workFunc(func(o *workOptions) error {
		if d < 0 {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the first delay is %v: it may not be negative", d)
		}
		o.config.DelaySeconds = d.Truncate(time.Millisecond).Seconds()
		return nil
	})
}

// Visibility is how long a delivery to an observer may go unanswered before it
// has failed and the message is given to another, if that is shorter than its
// Timeout. Whole milliseconds, at least 1.
func Visibility(d time.Duration) WorkOption {
	return workFunc(func(o *workOptions) error {
		if d < time.Millisecond {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the visibility timeout is %v: it is at least 1ms", d)
		}
		o.config.VisibilityTimeout = d.Truncate(time.Millisecond).Seconds()
		return nil
	})
}
