package protocol

// VerbGrant follows SubjectLane with a lane: GrantRequest → Granted. UNSUPPORTED:
// the broker that has a queue cannot do what a subscription to it asks for.
const VerbGrant = "grant"

// GrantRequest asks a lane's owner whether subscriptions to its queues can have
// what they ask for. A queue of which nobody has heard is where it would be.
type GrantRequest struct {
	Subscriptions []Subscription `json:"subscriptions"`
	// Effective asks what holds of each instead, and refuses nothing.
	Effective bool `json:"effective,omitempty"`
}

// Granted answers GrantRequest.
type Granted struct {
	// Warnings are for what is asked for and has no effect there.
	Warnings []string `json:"warnings,omitempty"`
	// Effective is what holds of each subscription of a request that asks for it, in
	// the same order.
	Effective []Effective `json:"effective,omitempty"`
}

// Effective is what holds of a subscription, or of a named queue, where its queue is
// now: not every broker can do all that was asked for.
type Effective struct {
	Broker     string `json:"broker,omitempty"` // as it is configured; empty: the mesh itself
	MaxRetries int    `json:"max_retries"`
	BackoffMs  int64  `json:"backoff_ms"` // 0: nothing waits there
	// BackoffType is as in Tuning.
	BackoffType BackoffType `json:"backoff_type,omitempty"`
	// Unmet says what the broker cannot do of what was asked for when the queue was
	// elsewhere: today it would be refused.
	Unmet string `json:"unmet,omitempty"`
	// Warnings are for what is asked for and has no effect there.
	Warnings []string `json:"warnings,omitempty"`
}
