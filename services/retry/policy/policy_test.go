package policy_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/services/retry/policy"
)

var frozen = []protocol.Verdict{
	protocol.VerdictSettle, protocol.VerdictRetryAt, protocol.VerdictHold,
	protocol.VerdictDeadLetter, protocol.VerdictReturn,
}

func verdicts(t interface{ Fatal(...any) }, said ...protocol.Verdict) policy.Verdicts {
	set, err := policy.ParseVerdicts(said)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const at = int64(1_700_000_000_000_000_000)

func after(d time.Duration) int64 { return at + int64(d) }

func TestOutcomes(t *testing.T) {
	item := func(outcome protocol.Outcome, attempt, vanished, incomplete uint32) protocol.DecideItem {
		return protocol.DecideItem{
			Outcome: outcome, At: at, Attempt: attempt, Vanished: vanished, Incomplete: incomplete,
			MaxRetries: 3, BackoffMs: 100,
		}
	}
	tests := []struct {
		name string
		item protocol.DecideItem
		want protocol.Decision
	}{
		{"acknowledged settles", item(protocol.Acknowledged, 2, 1, 1),
			protocol.Decision{Verdict: protocol.VerdictSettle, Attempt: 2, Vanished: 1, Incomplete: 1}},
		{"the first failure waits one backoff", item(protocol.Failed, 1, 0, 0),
			protocol.Decision{Verdict: protocol.VerdictRetryAt, Attempt: 2, Due: after(100 * time.Millisecond)}},
		{"the second waits two, and keeps the other counts", item(protocol.Failed, 2, 4, 5),
			protocol.Decision{Verdict: protocol.VerdictRetryAt, Attempt: 3, Due: after(200 * time.Millisecond), Vanished: 4, Incomplete: 5}},
		{"the third is the last", item(protocol.Failed, 3, 0, 0),
			protocol.Decision{Verdict: protocol.VerdictDeadLetter, Attempt: 3, Reason: protocol.ReasonFailed}},
		{"an attempt beyond the budget too", item(protocol.Failed, 9, 0, 0),
			protocol.Decision{Verdict: protocol.VerdictDeadLetter, Attempt: 9, Reason: protocol.ReasonFailed}},
		{"a timeout spends the same budget", item(protocol.Timeout, 2, 0, 0),
			protocol.Decision{Verdict: protocol.VerdictRetryAt, Attempt: 3, Due: after(200 * time.Millisecond)}},
		{"and has its own reason", item(protocol.Timeout, 3, 0, 0),
			protocol.Decision{Verdict: protocol.VerdictDeadLetter, Attempt: 3, Reason: protocol.ReasonTimeout}},
		{"rejected is dead at once", item(protocol.Rejected, 1, 0, 0),
			protocol.Decision{Verdict: protocol.VerdictDeadLetter, Attempt: 1, Reason: protocol.ReasonRejected}},
		{"cancelled comes back at once, unspent", item(protocol.Cancelled, 2, 3, 4),
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 2, Vanished: 3, Incomplete: 4}},
		{"vanished comes back at once, counted", item(protocol.Vanished, 2, 3, 4),
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 2, Vanished: 4, Incomplete: 4}},
		{"the 20th vanishing is the last", item(protocol.Vanished, 1, 19, 0),
			protocol.Decision{Verdict: protocol.VerdictDeadLetter, Attempt: 1, Vanished: 20, Reason: protocol.ReasonVanished}},
		{"pending is incomplete", item(protocol.Pending, 1, 0, 0),
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 1, Incomplete: 1, Due: after(100 * time.Millisecond)}},
		{"delivered too, after a longer pause", item(protocol.Delivered, 1, 0, 1),
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 1, Incomplete: 2, Due: after(200 * time.Millisecond)}},
		{"expired too, at most half a minute", item(protocol.Expired, 1, 0, 15),
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 1, Incomplete: 16, Due: after(30 * time.Second)}},
		{"an outcome of a later version too", item("transcended", 1, 0, 2),
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 1, Incomplete: 3, Due: after(400 * time.Millisecond)}},
		{"the 20th incomplete is the last", item(protocol.Pending, 1, 0, 19),
			protocol.Decision{Verdict: protocol.VerdictDeadLetter, Attempt: 1, Incomplete: 20, Reason: protocol.ReasonIncomplete}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := policy.Decide(test.item, verdicts(t, frozen...)); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	for _, nothing := range []int{0, -1, math.MinInt} {
		item := protocol.DecideItem{Outcome: protocol.Failed, At: at, MaxRetries: nothing, BackoffMs: int64(nothing)}
		want := protocol.Decision{Verdict: protocol.VerdictRetryAt, Attempt: 2, Due: after(time.Second)}
		if got := policy.Decide(item, verdicts(t, frozen...)); got != want {
			t.Errorf("with %d: got %+v, want %+v", nothing, got, want)
		}
		item.Attempt = protocol.DefaultMaxRetries
		if got := policy.Decide(item, verdicts(t, frozen...)); got.Verdict != protocol.VerdictDeadLetter {
			t.Errorf("with %d: attempt 3 of the default budget got %+v", nothing, got)
		}
	}
}

func TestVerdictsOfTheAskerOnly(t *testing.T) {
	failed := protocol.DecideItem{Outcome: protocol.Failed, At: at, Attempt: 1, MaxRetries: 2, BackoffMs: 100}
	spent := protocol.DecideItem{Outcome: protocol.Failed, At: at, Attempt: 2, MaxRetries: 2, BackoffMs: 100}
	done := protocol.DecideItem{Outcome: protocol.Acknowledged, At: at, Attempt: 1}
	tests := []struct {
		name string
		can  []protocol.Verdict
		item protocol.DecideItem
		want protocol.Decision
	}{
		{"no retry_at: held until due", []protocol.Verdict{"hold", "return"}, failed,
			protocol.Decision{Verdict: protocol.VerdictHold, Attempt: 2, Due: after(100 * time.Millisecond)}},
		{"nor hold: returned, not before due", []protocol.Verdict{"return"}, failed,
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 2, Due: after(100 * time.Millisecond)}},
		{"no dead_letter: kept, slowly", []protocol.Verdict{"retry_at", "return"}, spent,
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 2, Due: after(30 * time.Second)}},
		{"no settle: again", []protocol.Verdict{"return", "hold"}, done,
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 1}},
		{"a verdict from the future is no help", []protocol.Verdict{"return", "teleport"}, failed,
			protocol.Decision{Verdict: protocol.VerdictReturn, Attempt: 2, Due: after(100 * time.Millisecond)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := policy.Decide(test.item, verdicts(t, test.can...)); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if _, err := policy.ParseVerdicts([]protocol.Verdict{"settle", "retry_at"}); protocol.CodeOf(err) != protocol.CodeInvalidArgs {
		t.Errorf("a set without return: got %v, want INVALID_ARGS", err)
	}
}

func TestWhatTheWorkerAsksFor(t *testing.T) {
	for _, test := range []struct {
		name             string
		afterMs, backoff int64
		want             time.Duration
	}{
		{"longer than the delay", 5000, 100, 5 * time.Second},
		{"shorter: the delay", 50, 100, 100 * time.Millisecond},
		{"longer than an hour: an hour", 7_200_000, 100, time.Hour},
		{"longer than a long backoff: that", 20_000_000, 10_000_000, 10_000 * time.Second},
		{"no number of milliseconds there is", math.MaxInt64, 100, time.Hour},
		{"none", math.MinInt64, 100, 100 * time.Millisecond},
	} {
		for fifo, verdict := range map[bool]protocol.Verdict{false: protocol.VerdictRetryAt, true: protocol.VerdictHold} {
			item := protocol.DecideItem{Outcome: protocol.Failed, At: at, Attempt: 1, MaxRetries: 3, BackoffMs: test.backoff, RetryAfterMs: test.afterMs, FIFO: fifo}
			want := protocol.Decision{Verdict: verdict, Attempt: 2, Due: after(test.want)}
			if got := policy.Decide(item, verdicts(t, frozen...)); got != want {
				t.Errorf("%s: got %+v, want %+v", test.name, got, want)
			}
		}
	}
}

func anyItem() *rapid.Generator[protocol.DecideItem] {
	outcome := rapid.SampledFrom([]protocol.Outcome{
		protocol.Acknowledged, protocol.Failed, protocol.Rejected, protocol.Cancelled, protocol.Pending,
		protocol.Delivered, protocol.Expired, protocol.Timeout, protocol.Vanished, "", "other",
	})
	return rapid.Custom(func(t *rapid.T) protocol.DecideItem {
		return protocol.DecideItem{
			Outcome:    outcome.Draw(t, "outcome"),
			At:         rapid.Int64Min(0).Draw(t, "at"),
			Attempt:    rapid.Uint32().Draw(t, "attempt"),
			Vanished:   rapid.Uint32().Draw(t, "vanished"),
			Incomplete: rapid.Uint32().Draw(t, "incomplete"),
			MaxRetries: rapid.Int().Draw(t, "max_retries"),
			BackoffMs:  rapid.Int64().Draw(t, "backoff_ms"),

			RetryAfterMs: rapid.Int64().Draw(t, "retry_after_ms"),
		}
	})
}

func TestDecisionsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := anyItem().Draw(t, "item")
		can := rapid.SliceOfDistinct(rapid.SampledFrom(frozen[:4]), rapid.ID).Draw(t, "can")
		set := verdicts(t, append(can, protocol.VerdictReturn)...)
		got := policy.Decide(item, set)
		if again := policy.Decide(item, set); got != again {
			t.Fatalf("asked twice: %+v, then %+v", got, again)
		}
		known := false
		for _, v := range append(can, protocol.VerdictReturn) {
			known = known || v == got.Verdict
		}
		if !known {
			t.Fatalf("%q is not one of %q", got.Verdict, can)
		}
		if got.Due != 0 && got.Due < item.At {
			t.Fatalf("due %d is before the failure at %d", got.Due, item.At)
		}
		if got.Attempt < max(item.Attempt, 1) || got.Attempt-max(item.Attempt, 1) > 1 ||
			got.Vanished < item.Vanished || got.Incomplete < item.Incomplete {
			t.Fatalf("a count went back or jumped: %+v after %+v", got, item)
		}
		if (got.Reason != "") != (got.Verdict == protocol.VerdictDeadLetter) {
			t.Fatalf("reason %q with verdict %q", got.Reason, got.Verdict)
		}
	})
}

func TestDelayOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backoff := rapid.Int64Min(1).Draw(t, "backoff_ms")
		attempt := rapid.Uint32Range(1, math.MaxUint32-1).Draw(t, "attempt")
		base := policy.Delay(1, backoff, "")
		limit := max(base, protocol.MaxBackoffCap)
		this, next := policy.Delay(attempt, backoff, ""), policy.Delay(attempt+1, backoff, "")
		switch {
		case this < base, this > limit:
			t.Fatalf("delay %v is not between %v and %v", this, base, limit)
		case next < this:
			t.Fatalf("delay fell from %v to %v", this, next)
		case next != limit && next != 2*this:
			t.Fatalf("delay grew from %v to %v, neither doubled nor capped at %v", this, next, limit)
		}
		if backoff <= math.MaxInt64/int64(time.Millisecond) && base != time.Duration(backoff)*time.Millisecond {
			t.Fatalf("the first delay is %v, not %d ms", base, backoff)
		}
	})
}

func TestEveryMessageEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.IntRange(1, 40).Draw(t, "max_retries")
		item := protocol.DecideItem{At: at, Attempt: 1, MaxRetries: budget, BackoffMs: 1}
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]protocol.Outcome{
			protocol.Failed, protocol.Timeout, protocol.Vanished, protocol.Pending,
		}), 100, 100).Draw(t, "outcomes")
		set := verdicts(t, frozen...)
		for n, outcome := range outcomes {
			item.Outcome = outcome
			got := policy.Decide(item, set)
			if got.Verdict == protocol.VerdictDeadLetter {
				if (got.Reason == protocol.ReasonFailed || got.Reason == protocol.ReasonTimeout) && got.Attempt != uint32(budget) {
					t.Fatalf("dead after %d of %d failed deliveries", got.Attempt, budget)
				}
				return
			}
			if n >= budget+2*protocol.MaxVanished {
				t.Fatalf("still alive after %d deliveries: %+v", n+1, got)
			}
			item.Attempt, item.Vanished, item.Incomplete = got.Attempt, got.Vanished, got.Incomplete
		}
	})
}

// Each kind of backoff, from the first failure on.
func TestBackoffTypes(t *testing.T) {
	for kind, want := range map[protocol.BackoffType][]int{
		"":                          {1, 2, 4, 8},
		protocol.BackoffExponential: {1, 2, 4, 8},
		"of a later version":        {1, 2, 4, 8},
		protocol.BackoffLinear:      {1, 2, 3, 4},
		protocol.BackoffFixed:       {1, 1, 1, 1},
	} {
		for i, n := range want {
			item := protocol.DecideItem{Outcome: protocol.Failed, At: at, Attempt: uint32(i + 1), MaxRetries: 9, BackoffMs: 50, BackoffType: kind}
			if got := policy.Decide(item, verdicts(t, frozen...)); got.Due != at+int64(n)*int64(50*time.Millisecond) {
				t.Errorf("%s backoff, failure %d: %v", kind, i+1, time.Duration(got.Due-at))
			}
		}
	}
	day := (24 * time.Hour).Milliseconds()
	for _, c := range []struct {
		attempt uint32
		backoff int64
		want    time.Duration
	}{
		{3599, 1000, 3599 * time.Second}, {3601, 1000, time.Hour}, {math.MaxUint32, 1, time.Hour},
		{2, day, 24 * time.Hour}, {7, math.MaxInt64, math.MaxInt64}, {0, 5, 5 * time.Millisecond},
	} {
		if got := policy.Delay(c.attempt, c.backoff, protocol.BackoffLinear); got != c.want {
			t.Errorf("linear, attempt %d of %d ms: %v", c.attempt, c.backoff, got)
		}
	}
	if got := policy.Delay(math.MaxUint32, day, protocol.BackoffFixed); got != 24*time.Hour {
		t.Errorf("fixed: %v", got)
	}
}
