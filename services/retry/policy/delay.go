package policy

import (
	"math"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// The pause before an incomplete delivery is repeated: it doubles from
// firstPause to maxPause.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second
)

// Delay is the time between the failure of an attempt and the next one:
// backoffMs, growing with each attempt as kind says, at most the larger of an
// hour and backoffMs itself. A backoffMs below 1 is the default. No attempt and
// no backoff overflows.
func Delay(attempt uint32, backoffMs int64, kind protocol.BackoffType) time.Duration {
	switch base := base(backoffMs); kind {
	case protocol.BackoffFixed:
		return base
	case protocol.BackoffLinear:
		return multiply(base, attempt, longest(backoffMs))
	default:
		return double(base, attempt, longest(backoffMs))
	}
}

// base is the delay before the second attempt.
func base(backoffMs int64) time.Duration {
	if backoffMs < 1 {
		backoffMs = protocol.DefaultBackoffMs
	}
	return milliseconds(backoffMs)
}

// longest is what no delay exceeds.
func longest(backoffMs int64) time.Duration { return max(base(backoffMs), protocol.MaxBackoffCap) }

// delayOf is an item's Delay, or what its worker asks for if that is longer,
// within the same bound.
func delayOf(attempt uint32, item protocol.DecideItem) time.Duration {
	asked := min(milliseconds(max(item.RetryAfterMs, 0)), longest(item.BackoffMs))
	return max(Delay(attempt, item.BackoffMs, item.BackoffType), asked)
}

// Pause is the time before a delivery is repeated after the nth answer that
// was no outcome.
func Pause(n uint32) time.Duration { return double(firstPause, n, maxPause) }

// double is base doubled n-1 times, at most limit.
func double(base time.Duration, n uint32, limit time.Duration) time.Duration {
	shift := max(n, 1) - 1
	if shift > 62 || base > limit>>shift {
		return limit
	}
	return base << shift
}

// multiply is n times base, at most limit.
func multiply(base time.Duration, n uint32, limit time.Duration) time.Duration {
	times := int64(max(n, 1))
	if int64(base) > int64(limit)/times {
		return limit
	}
	return time.Duration(int64(base) * times)
}

func milliseconds(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
