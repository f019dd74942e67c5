// Package policy decides what becomes of a delivery that was not acknowledged:
// the attempt, the budget, the delay and the crash bound, and nothing else in
// the mesh computes any of them. Its functions are pure, so a question may be
// asked twice and has the same answer.
package policy

import (
	"math"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Decide answers one delivery with a verdict of the asker's set; see
// Verdicts.nearest for what stands in for a verdict the asker cannot execute.
// An item's zero or negative MaxRetries and BackoffMs take the defaults.
func Decide(item protocol.DecideItem, can Verdicts) protocol.Decision {
	decision := decide(item)
	verdict := can.nearest(decision.Verdict)
	if verdict != decision.Verdict && decision.Verdict == protocol.VerdictDeadLetter {
		// It stays with an asker that has no place for dead letters, and is
		// tried again slowly: better than lost, and never hot.
		decision.Reason = ""
		decision.Due = later(item.At, maxPause)
	}
	decision.Verdict = verdict
	return decision
}

func decide(item protocol.DecideItem) protocol.Decision {
	same := protocol.Decision{
		Verdict:    protocol.VerdictReturn,
		Attempt:    max(item.Attempt, 1),
		Vanished:   item.Vanished,
		Incomplete: item.Incomplete,
	}
	switch item.Outcome {
	case protocol.Acknowledged:
		same.Verdict = protocol.VerdictSettle
		return same
	case protocol.Failed:
		return spend(same, item, protocol.ReasonFailed)
	case protocol.Timeout:
		return spend(same, item, protocol.ReasonTimeout)
	case protocol.Rejected:
		return dead(same, protocol.ReasonRejected)
	case protocol.Cancelled:
		return same
	case protocol.Vanished:
		return vanished(same)
	default:
		// pending, delivered, expired, and what a later version may say: no
		// outcome of finished work.
		return incomplete(same, item.At)
	}
}

// spend takes one failed delivery off the budget. The attempts before this one
// all failed, since nothing else raises the attempt.
func spend(d protocol.Decision, item protocol.DecideItem, reason protocol.Reason) protocol.Decision {
	budget := item.MaxRetries
	if budget < 1 {
		budget = protocol.DefaultMaxRetries
	}
	if int64(d.Attempt) >= int64(budget) || d.Attempt == math.MaxUint32 {
		return dead(d, reason)
	}
	d.Verdict = protocol.VerdictRetryAt
	if item.FIFO {
		d.Verdict = protocol.VerdictHold
	}
	d.Due = later(item.At, delayOf(d.Attempt, item))
	d.Attempt++
	return d
}

func vanished(d protocol.Decision) protocol.Decision {
	d.Vanished = increment(d.Vanished)
	if d.Vanished >= protocol.MaxVanished {
		return dead(d, protocol.ReasonVanished)
	}
	return d
}

func incomplete(d protocol.Decision, at int64) protocol.Decision {
	d.Incomplete = increment(d.Incomplete)
	if d.Incomplete >= protocol.MaxVanished {
		return dead(d, protocol.ReasonIncomplete)
	}
	d.Due = later(at, Pause(d.Incomplete))
	return d
}

func dead(d protocol.Decision, reason protocol.Reason) protocol.Decision {
	d.Verdict = protocol.VerdictDeadLetter
	d.Reason = reason
	return d
}

func increment(n uint32) uint32 {
	if n == math.MaxUint32 {
		return n
	}
	return n + 1
}

// later is at (ns since the epoch) plus a delay, at most the end of time.
func later(at int64, d time.Duration) int64 {
	if at > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return at + int64(d)
}
