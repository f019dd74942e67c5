package protocol

import (
	"strings"
)

// Headers of the mesh. All others belong to the publisher and pass unchanged.
const (
	// HeaderAttempt is the 1-based attempt of a delivery. The mesh alone sets
	// it: a published one is refused.
	HeaderAttempt = "x-delivery-attempt"
	// HeaderMessageID names the message, the same through retries and redrives.
	HeaderMessageID = "Waybill-Message-Id"
	// HeaderGeneration says how often the message was redriven; absent for 0.
	HeaderGeneration = "Waybill-Generation"
	// HeaderTimeout is the delivery's time limit in milliseconds.
	HeaderTimeout = "Waybill-Timeout-Ms"
	// HeaderMaxRetries is the number of failed deliveries the message is
	// allowed, so that a handler can say "try 2 of 3".
	HeaderMaxRetries = "Waybill-Max-Retries"
	// HeaderEpoch is the epoch of the lane's owner. A worker refuses a
	// delivery whose epoch is below the highest it has seen for that lane.
	HeaderEpoch = "Waybill-Epoch"
	// HeaderOutcome is a reply's Outcome. A reply without it and without an
	// error header is acknowledged.
	HeaderOutcome = "Waybill-Outcome"
	// HeaderError is a reply's error text on one line; a body, if there is
	// one, is the whole text and wins.
	HeaderError = "Waybill-Error"

	// HeaderRetryAfter, in a reply whose Outcome is Failed, is a number of
	// milliseconds: the message is not tried again before they have passed, or
	// its longest delay (MaxBackoffCap, or a longer backoff_ms).
	HeaderRetryAfter = "Waybill-Retry-After-Ms"

	// HeaderDedup deduplicates a publish within its queue or topic for
	// DedupWindow.
	HeaderDedup = "Nats-Msg-Id"
	// HeaderDeliverAt and HeaderDelayMs schedule a publish: it is not delivered
	// before that time (RFC 3339 with its zone, or milliseconds since 1970), or
	// that many milliseconds after it arrived. At most one of them is given;
	// neither is delivered.
	HeaderDeliverAt = "Waybill-Deliver-At"
	HeaderDelayMs   = "Waybill-Delay-Ms"
	// HeaderGroup is the group of a message, any text of at most MaxGroup bytes:
	// a FIFO queue handles a group's messages in order, one at a time.
	// HeaderPriority, 0 to 255, is handled first the higher it is, in a queue
	// with priorities. Both are delivered as they were published.
	HeaderGroup    = "Waybill-Group"
	HeaderPriority = "Waybill-Priority"
	// HeaderServiceError and HeaderServiceErrorCode are what NATS micro
	// services answer errors with; in a reply to a delivery they mean failed.
	HeaderServiceError     = "Nats-Service-Error"
	HeaderServiceErrorCode = "Nats-Service-Error-Code"
	// HeaderStatus is set by the NATS server (503: no responders).
	HeaderStatus = "Status"
	// StatusNoResponders is its value for a request that nobody took. A worker
	// says it of a delivery to a subscription that it does not know (yet).
	StatusNoResponders = "503"

	// HeaderCorrelation is for publishers to use as they like: nothing in the
	// mesh reads it.
	HeaderCorrelation = "x-correlation-id"

	// HeaderSpan is the id of the mesh's own span of a delivery, 16 hexadecimal
	// digits, in the trace that HeaderTraceparent names: what a worker does with
	// the delivery is a part of it. Absent if there is none.
	HeaderSpan = "Waybill-Span"

	// ReplyDeclined ends the reply subject of a publish without a traceparent
	// whose publisher makes spans and has decided that it is not sampled: nobody
	// decides again, and the message needs no header to say so.
	ReplyDeclined = "~"

	// HeaderTraceparent, HeaderTracestate and HeaderBaggage are the publisher's
	// trace, as W3C Trace Context and W3C Baggage have it. They travel unchanged;
	// see CleanTrace.
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
	HeaderBaggage     = "baggage"
)

// reservedExact are header names a broker or the mesh would obey, in lower
// case.
var reservedExact = map[string]bool{
	HeaderAttempt: true,
	"status":      true, // NATS reads it as a server's answer
	// AMQP 0-9-1 (RabbitMQ).
	"cc": true, "bcc": true, "x-death": true, "x-first-death-exchange": true,
	"x-first-death-queue": true, "x-first-death-reason": true,
	"x-last-death-exchange": true, "x-last-death-queue": true, "x-last-death-reason": true,
	"x-delivery-count": true, "x-acquired-count": true,
	// STOMP frames.
	"destination": true, "destination-type": true, "receipt": true, "receipt-id": true, "transaction": true, "persistent": true,
	"selector": true, "content-length": true, "subscription": true, "message-id": true,
	"ack": true, "id": true, "expires": true, "priority": true, "redelivered": true, "session": true,
	"reply-to": true, "browser": true, "breadcrumbid": true,
}

var reservedPrefix = []string{"nats-", "waybill-", "amq_", "amq-", "_amq_", "_amq-", "jms", "x-opt-", "x-match"}

// ReservedHeader says whether a publisher may not set the header, in any case
// of its letters. Those of the mesh that are the publisher's to set are allowed:
// HeaderDedup, HeaderDeliverAt, HeaderDelayMs, HeaderGroup and HeaderPriority.
func ReservedHeader(name string) bool {
	lower := strings.ToLower(name)
	switch lower {
	case "nats-msg-id", "waybill-deliver-at", "waybill-delay-ms", "waybill-group", "waybill-priority":
		return false
	}
	if reservedExact[lower] {
		return true
	}
	for _, p := range reservedPrefix {
		if strings.HasPrefix(lower, p) {
			return true
		}
	}
	return false
}

// CheckHeaders refuses what may not be published: a reserved name
// (RESERVED_HEADER), a repeated or malformed name or a value that would not
// arrive as it is (INVALID_ARGS), and headers over MaxHeaderBytes
// (LIMIT_EXCEEDED).
func CheckHeaders(headers map[string][]string) error {
	size := 0
	for name, values := range headers {
		if ReservedHeader(name) {
			return Errorf(CodeReservedHeader, "header %q is reserved: rename it (names beginning Nats- or Waybill-, and those a broker obeys, may not be published)", name)
		}
		if name == "" || strings.ContainsFunc(name, malformed) {
			return Errorf(CodeInvalidArgs, "header name %q is malformed: it takes letters, digits and !#$%%&'*+-.^_`|~ only", name)
		}
		if len(values) != 1 {
			return Errorf(CodeInvalidArgs, "header %q has %d values: send one", name, len(values))
		}
		if err := CheckHeaderValue(name, values[0]); err != nil {
			return err
		}
		size += len(name) + len(values[0]) + 4
	}
	if size > MaxHeaderBytes {
		return Errorf(CodeLimitExceeded, "headers take %d bytes, more than %d", size, MaxHeaderBytes)
	}
	return nil
}

// CheckHeaderValue refuses a header's value that would not arrive as it is:
// INVALID_ARGS.
func CheckHeaderValue(name, value string) error {
	if strings.ContainsAny(value, "\r\n\x00") {
		return Errorf(CodeInvalidArgs, "the value of header %q has CR, LF or NUL: encode it", name)
	}
	if strings.Trim(value, " \t") != value {
		return Errorf(CodeInvalidArgs, "the value of header %q begins or ends with white space, which NATS does not carry: encode it", name)
	}
	return nil
}

// malformed says whether a header's name cannot have r. The rest are the
// characters of an HTTP field name; clients of NATS refuse to send others.
func malformed(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}
