package protocol

// Outcome says how a delivery ended, in HeaderOutcome.
type Outcome string

const (
	// Acknowledged: the work is done.
	Acknowledged Outcome = "acknowledged"
	// Failed: try again after a delay, dead-letter when the budget is spent.
	Failed Outcome = "failed"
	// Rejected: this message can never succeed; dead-letter at once.
	Rejected Outcome = "rejected"
	// Cancelled: a worker that shuts down hands the delivery back unspent.
	Cancelled Outcome = "cancelled"
	// Pending, Delivered and Expired are no outcomes of finished work: the
	// delivery is incomplete and the message is delivered again.
	Pending   Outcome = "pending"
	Delivered Outcome = "delivered"
	Expired   Outcome = "expired"

	// Timeout and Vanished are never sent by a worker: the router concludes
	// them and tells the retry service.
	Timeout  Outcome = "timeout"
	Vanished Outcome = "vanished"
)

// Verdict is what the retry service tells the router to do with a delivery
// that was not acknowledged. The set is frozen; a router says which it can
// execute (DecideRequest.Verdicts).
type Verdict string

const (
	VerdictSettle     Verdict = "settle"
	VerdictRetryAt    Verdict = "retry_at"
	VerdictHold       Verdict = "hold"
	VerdictDeadLetter Verdict = "dead_letter"
	VerdictReturn     Verdict = "return"
)

// Reason says why a message is a dead letter.
type Reason string

const (
	ReasonFailed     Reason = "failed"     // every allowed delivery failed
	ReasonTimeout    Reason = "timeout"    // the last allowed delivery got no answer in time
	ReasonRejected   Reason = "rejected"   // a handler rejected it
	ReasonVanished   Reason = "vanished"   // its workers vanished MaxVanished times
	ReasonIncomplete Reason = "incomplete" // MaxVanished answers that were no outcome
)
