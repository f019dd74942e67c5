package protocol

// BackoffType says how the delay before another try grows.
type BackoffType string

// How it grows, backoff_ms being the first delay. None grows beyond the larger
// of an hour and backoff_ms.
const (
	BackoffExponential BackoffType = "exponential" // it doubles with each failure; the default
	BackoffLinear      BackoffType = "linear"      // it is backoff_ms longer with each failure
	BackoffFixed       BackoffType = "fixed"       // it stays the same
)

// Tuning is what an observer's queue_config says beyond the fields that every
// subscription has.
type Tuning struct {
	// BackoffType is empty for BackoffExponential.
	BackoffType BackoffType `json:"backoff_type,omitempty"`
	// DelayMs is how long after its publish a message is first delivered.
	DelayMs int64 `json:"delay_ms,omitempty"`
	// VisibilityMs bounds a delivery beside timeout_ms; 0: it does not.
	VisibilityMs int64 `json:"visibility_ms,omitempty"`
	// Serial says that all messages of a queue of TypeFIFO are one group.
	Serial bool `json:"serial,omitempty"`
	// GroupField is the member of the payload, a JSON object, whose value is the
	// group of a message in a queue of TypeFIFO. A message that has no non-empty
	// string or number there is in the group that its publisher names.
	GroupField string `json:"group_field,omitempty"`
}
