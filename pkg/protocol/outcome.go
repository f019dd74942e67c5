package protocol

// Outcome says how a delivery ended, in HeaderOutcome.
type Outcome string

// Outcomes a worker answers.
const (
	Acknowledged Outcome = "acknowledged" // the work is done
	Failed       Outcome = "failed"       // try again after a delay, dead-letter when the budget is spent
	Rejected     Outcome = "rejected"     // the message can never succeed; dead-letter at once
	Cancelled    Outcome = "cancelled"    // a worker that shuts down hands the delivery back unspent
)

// Outcomes that are none of finished work, as any unknown one: the delivery is
// incomplete and the message is delivered again.
const (
	Pending   Outcome = "pending"
	Delivered Outcome = "delivered"
	Expired   Outcome = "expired"
)

// Outcomes that no worker sends: the router concludes them and tells the retry
// service.
const (
	Timeout  Outcome = "timeout"
	Vanished Outcome = "vanished"
)

// Verdict is what the retry service tells the router to do with a delivery
// that was not acknowledged. The set is frozen; a router says which it can
// execute (DecideRequest.Verdicts).
type Verdict string

// The verdicts.
const (
	VerdictSettle     Verdict = "settle"      // nothing more is owed
	VerdictRetryAt    Verdict = "retry_at"    // the retry service keeps the message until it is due
	VerdictHold       Verdict = "hold"        // the message keeps its place and waits until it is due
	VerdictDeadLetter Verdict = "dead_letter" // the message is given up
	VerdictReturn     Verdict = "return"      // deliver again from where it is, unspent, once it is due
)

// Reason says why a message is a dead letter.
type Reason string

// The reasons.
const (
	ReasonFailed     Reason = "failed"     // every allowed delivery failed
	ReasonTimeout    Reason = "timeout"    // the last allowed delivery got no answer in time
	ReasonRejected   Reason = "rejected"   // a handler rejected it
	ReasonVanished   Reason = "vanished"   // its workers vanished MaxVanished times
	ReasonIncomplete Reason = "incomplete" // MaxVanished answers that were no outcome
	ReasonDiverted   Reason = "diverted"   // one before it in its group was dead-lettered, see DeadLetterDivert
	ReasonBroker     Reason = "broker"     // the broker gave it up, by a limit or policy of its own
	ReasonGone       Reason = "gone"       // redriven to a listener that is not there any more
)
