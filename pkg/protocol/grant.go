package protocol

// VerbGrant follows SubjectLane with a lane: GrantRequest → Granted. UNSUPPORTED:
// the broker that has a queue cannot do what a subscription to it asks for.
const VerbGrant = "grant"

// GrantRequest asks a lane's owner whether subscriptions to its queues can have
// what they ask for. A queue of which nobody has heard is where it would be.
type GrantRequest struct {
	Subscriptions []Subscription `json:"subscriptions"`
}

// Granted answers GrantRequest.
type Granted struct {
	// Warnings are for what is asked for and has no effect there.
	Warnings []string `json:"warnings,omitempty"`
}
