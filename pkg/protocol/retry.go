package protocol

// DecideRequest asks the retry service what to do with deliveries that were
// not acknowledged. Answers come in the order of the items. Deciding changes
// nothing, so a request may be repeated.
type DecideRequest struct {
	Verdicts []Verdict    `json:"verdicts"` // what the asking router can execute
	Items    []DecideItem `json:"items"`
}

// DecideItem is one delivery that was not acknowledged.
type DecideItem struct {
	MessageID  string  `json:"message_id,omitempty"`
	Outcome    Outcome `json:"outcome"`
	At         int64   `json:"at"` // when it ended, ns since the epoch
	Attempt    uint32  `json:"attempt"`
	Vanished   uint32  `json:"vanished,omitempty"`   // before this one
	Incomplete uint32  `json:"incomplete,omitempty"` // before this one
	MaxRetries int     `json:"max_retries"`
	BackoffMs  int64   `json:"backoff_ms"`
	// BackoffType is empty for BackoffExponential, which is what an unknown one
	// counts as.
	BackoffType BackoffType `json:"backoff_type,omitempty"`
	// FIFO says that the message may not be overtaken: it is held in its place
	// instead of waiting elsewhere.
	FIFO bool `json:"fifo,omitempty"`
	// RetryAfterMs is how long the worker asks to wait at least (HeaderRetryAfter).
	RetryAfterMs int64 `json:"retry_after_ms,omitempty"`
}

// DecideReply answers DecideRequest.
type DecideReply struct {
	Items []Decision `json:"items"`
}

// Decision is the verdict on one delivery and the message's numbers after it.
type Decision struct {
	Verdict    Verdict `json:"verdict"`
	Due        int64   `json:"due,omitempty"` // retry_at, hold, return: not before, ns since the epoch
	Attempt    uint32  `json:"attempt"`       // of the next delivery
	Vanished   uint32  `json:"vanished,omitempty"`
	Incomplete uint32  `json:"incomplete,omitempty"`
	Reason     Reason  `json:"reason,omitempty"` // dead_letter
}
