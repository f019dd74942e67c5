package protocol

import (
	"strconv"
	"strings"
	"time"
)

// MaxSchedule is how far ahead a message may be scheduled: ten years.
const MaxSchedule = 3653 * 24 * time.Hour

// TakeSchedule takes HeaderDeliverAt and HeaderDelayMs, however they are
// written, out of a publish's headers and says when it is to be delivered; zero
// for at once, which a time that has passed is too. now is when it arrived.
//
// INVALID_ARGS: both are given, or one twice; it is no time; it is further away
// than MaxSchedule.
func TakeSchedule(headers map[string][]string, now time.Time) (time.Time, error) {
	var due time.Time
	given := false
	for name, values := range headers {
		at := strings.EqualFold(name, HeaderDeliverAt)
		if !at && !strings.EqualFold(name, HeaderDelayMs) {
			continue
		}
		if given || len(values) != 1 {
			return due, Errorf(CodeInvalidArgs, "%s and %s say when the message is to be delivered: send one of them, once", HeaderDeliverAt, HeaderDelayMs)
		}
		given = true
		var err error
		if at {
			due, err = parseDeliverAt(values[0])
		} else {
			due, err = parseDelay(values[0], now)
		}
		if err != nil {
			return due, err
		}
		delete(headers, name)
	}
	return CheckSchedule(due, now)
}

// CheckSchedule is due, or zero if that is not after now. INVALID_ARGS: it is
// further away than MaxSchedule.
func CheckSchedule(due, now time.Time) (time.Time, error) {
	if due.After(now.Add(MaxSchedule)) {
		return time.Time{}, Errorf(CodeInvalidArgs, "%s is more than ten years away: the mesh keeps no message that long", due.Format(time.RFC3339))
	}
	if !due.After(now) {
		return time.Time{}, nil
	}
	return due, nil
}

func parseDeliverAt(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && s[0] != '+' {
		return time.UnixMilli(ms), nil
	}
	due, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return due, Errorf(CodeInvalidArgs, "%s is %.64q: it is a time with its zone (RFC 3339, such as 2026-03-04T05:06:07Z), or milliseconds since 1970", HeaderDeliverAt, s)
	}
	return due, nil
}

func parseDelay(s string, now time.Time) (time.Time, error) {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 0 || s[0] < '0' || s[0] > '9' {
		return now, Errorf(CodeInvalidArgs, "%s is %.64q: it is a whole number of milliseconds, 0 or more", HeaderDelayMs, s)
	}
	if ms > MaxSchedule.Milliseconds() {
		return now, Errorf(CodeInvalidArgs, "%s is %d, more than ten years: the mesh keeps no message that long", HeaderDelayMs, ms)
	}
	return now.Add(time.Duration(ms) * time.Millisecond), nil
}
