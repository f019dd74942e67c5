package protocol

import "time"

// WaitingListRequest lists messages that wait for their time, those due first
// in front: of one queue, of all that subscribe to a topic, of one execution, or
// all.
type WaitingListRequest struct {
	Queue     string `json:"queue,omitempty"` // as in Subscription
	Topic     string `json:"topic,omitempty"`
	Execution string `json:"execution,omitempty"`
	// After is WaitingPage.Next of the page before.
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"` // default 50, at most 1,000
}

// WaitingPage answers WaitingListRequest. Messages may be fewer than Limit, so
// that a page stays below 1 MiB; Next is empty on the last page.
type WaitingPage struct {
	Messages []WaitingMessage `json:"messages"`
	Total    int64            `json:"total"` // that wait, on all pages
	Next     string           `json:"next,omitempty"`
	// Away is as in DeadPage.
	Away []string `json:"away,omitempty"`
}

// WaitingWhy is what a message waits for.
type WaitingWhy string

// What messages wait for.
const (
	WaitsForRetry    WaitingWhy = "retry"     // the next attempt after a failure
	WaitsForSchedule WaitingWhy = "scheduled" // the time its publisher asked for
)

// WaitingMessage is a message that waits, until when, and why.
type WaitingMessage struct {
	MessageID   string     `json:"message_id"`
	Queue       string     `json:"queue"`
	Execution   string     `json:"execution,omitempty"`
	Route       string     `json:"route,omitempty"`
	Topic       string     `json:"topic,omitempty"`
	Attempt     uint32     `json:"attempt"` // of the delivery it waits for
	Generation  uint32     `json:"generation"`
	Why         WaitingWhy `json:"why"`
	Due         time.Time  `json:"due"`
	Error       string     `json:"error,omitempty"`  // of the last failure
	Source      string     `json:"source,omitempty"` // the subscription whose delivery failed last
	PublishedAt time.Time  `json:"published_at"`
	LastFailure time.Time  `json:"last_failure,omitzero"`
	SizeBytes   int        `json:"size_bytes"`
}

// WaitingActRequest releases messages at once, or cancels them: one message,
// those of a queue, of all that subscribe to a topic, of an execution, or all. Exactly one of the fields is set.
// What arrives after the request is not touched.
type WaitingActRequest struct {
	MessageID string `json:"message_id,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Execution string `json:"execution,omitempty"`
	All       bool   `json:"all,omitempty"`
	By        string `json:"by,omitempty"` // who asks, as in DeadActRequest
}

// WaitingActReply says how many were released or cancelled; 0 is no error.
type WaitingActReply struct {
	Count int64 `json:"count"`
	// Away is as in DeadActReply.
	Away []string `json:"away,omitempty"`
}
