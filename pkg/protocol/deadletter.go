package protocol

import "time"

// DeadListRequest lists dead letters, oldest first: of one queue, of all that
// subscribe to a topic, or, with neither, of all.
type DeadListRequest struct {
	Queue  string `json:"queue,omitempty"` // as in Subscription
	Topic  string `json:"topic,omitempty"`
	Offset int    `json:"offset,omitempty"`
	Limit  int    `json:"limit,omitempty"` // default 50, at most 1,000
	// Payloads asks for the letters' payloads too.
	Payloads bool `json:"payloads,omitempty"`
}

// DeadPage answers DeadListRequest. Headers, and payloads that were not asked
// for, are left out: show has them. Letters may be fewer than Limit, so that a page stays below 1 MiB:
// the next one begins at Offset + len(Letters).
type DeadPage struct {
	Letters []DeadLetter `json:"letters"`
	Total   int64        `json:"total"`
	// Away says which brokers could not be asked, and why: what they have is not listed
	// and not counted.
	Away []string `json:"away,omitempty"`
}

// DeadShowRequest asks for one dead letter, whole.
type DeadShowRequest struct {
	MessageID string `json:"message_id"`
}

// DeadLetter is a message that was given up, and why. Times are those of the
// failures, at the router that saw them.
type DeadLetter struct {
	MessageID    string              `json:"message_id"`
	Queue        string              `json:"queue"`
	Execution    string              `json:"execution,omitempty"`
	Route        string              `json:"route,omitempty"`
	Topic        string              `json:"topic,omitempty"`
	Source       string              `json:"source"` // the subscription whose delivery failed last
	Reason       Reason              `json:"reason"`
	Error        string              `json:"error"`
	Attempts     uint32              `json:"attempts"`
	Generation   uint32              `json:"generation"`
	PublishedAt  time.Time           `json:"published_at"`
	FirstFailure time.Time           `json:"first_failure"`
	LastFailure  time.Time           `json:"last_failure"`
	SizeBytes    int                 `json:"size_bytes"`
	Group        string              `json:"group,omitempty"`
	Priority     uint8               `json:"priority,omitempty"`
	Headers      map[string][]string `json:"headers,omitempty"`
	// HeadersBase64 has, byte for byte, the headers whose values are not UTF-8;
	// in Headers, which is JSON text, these have U+FFFD for what is not.
	HeadersBase64 map[string][][]byte `json:"headers_base64,omitempty"`
	Payload       []byte              `json:"payload,omitempty"` // base64 in JSON
	// Truncated says that Payload is only the beginning of SizeBytes: others have put more
	// into a broker's queue than an answer holds.
	Truncated bool `json:"truncated,omitempty"`
}

// DeadPresentRequest asks the owner of a ledger of dead letters which of them
// are there, on DeadPresentSubject.
type DeadPresentRequest struct {
	Letters []LetterName `json:"letters"`
}

// LetterName names a dead letter.
type LetterName struct {
	Queue     string `json:"queue"`
	MessageID string `json:"message_id"`
}

// DeadPresentReply answers DeadPresentRequest, in its order: whether the ledger
// holds the letter, one on its way out included.
type DeadPresentReply struct {
	Present []bool `json:"present"`
}

// DeadActRequest redrives or discards: one message, the dead letters of a
// queue, those of all that subscribe to a topic, or all. Exactly one of the fields is set, except that a message may
// be one of a queue or of a topic's subscribers alone. What arrives after the request is not touched.
type DeadActRequest struct {
	MessageID string `json:"message_id,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Topic     string `json:"topic,omitempty"`
	All       bool   `json:"all,omitempty"`
	// By is who asks, for people: at most 128 bytes, kept in the story of what is
	// redriven.
	By string `json:"by,omitempty"`
}

// DeadActReply says how many were redriven or discarded; 0 is no error.
type DeadActReply struct {
	Count int64 `json:"count"`
	// Refused letters stay: their executions are closed (EXECUTION_CLOSED). A
	// redrive of which all are refused is that error.
	Refused int64 `json:"refused,omitempty"`
	// Away, of an owner of a lane alone, says which brokers could not be asked, and why.
	Away []string `json:"away,omitempty"`
}
