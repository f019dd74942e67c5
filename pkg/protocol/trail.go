package protocol

import (
	"encoding/json"
	"time"
)

// TrailRequest asks a service for what its log has of a message.
type TrailRequest struct {
	MessageID string `json:"message_id"`
}

// TrailReply answers TrailRequest.
type TrailReply struct {
	Service string `json:"service"`
	// Since is the time of the oldest commit in the log: what ended before may be
	// in it no more.
	Since  time.Time `json:"since,omitzero"`
	Trails []Trail   `json:"trails"`
	// LeftOut are subscriptions to the message's topic that it did not reach.
	LeftOut []LeftOut `json:"left_out,omitempty"`
}

// LeftOut is a subscription that was there when a message of its topic was
// published, and whose filter does not match it.
type LeftOut struct {
	Queue        string          `json:"queue"`
	Subscription string          `json:"subscription"`
	Worker       string          `json:"worker"` // its name
	WorkerID     string          `json:"worker_id"`
	Filters      json.RawMessage `json:"filters"`
}

// Trail is what a log has of a message in one queue.
type Trail struct {
	Ledger       string    `json:"ledger"`
	Key          uint64    `json:"key"` // in the ledger
	Queue        string    `json:"queue"`
	PublishedAt  time.Time `json:"published_at"`
	Publisher    string    `json:"publisher,omitempty"` // as it named itself
	SizeBytes    int       `json:"size_bytes"`
	Group        string    `json:"group,omitempty"`
	Priority     uint8     `json:"priority,omitempty"`
	Traceparent  string    `json:"traceparent,omitempty"` // as published
	Attempt      uint32    `json:"attempt"`               // of the next delivery
	Generation   uint32    `json:"generation"`
	Vanished     uint32    `json:"vanished,omitempty"`
	Incomplete   uint32    `json:"incomplete,omitempty"`
	Due          time.Time `json:"due,omitzero"`
	LastFailure  time.Time `json:"last_failure,omitzero"`
	Reason       Reason    `json:"reason,omitempty"`
	Error        string    `json:"error,omitempty"`
	Subscription string    `json:"subscription,omitempty"` // of the last failure

	AcceptedAt time.Time `json:"accepted_at,omitzero"` // by this ledger; zero: before what the log has
	Dest       string    `json:"dest,omitempty"`       // the ledger it goes or went to
	DecidedAt  time.Time `json:"decided_at,omitzero"`
	EndedAt    time.Time `json:"ended_at,omitzero"` // zero: it is this ledger's still
	// How it ended, as counters are called; empty: it was handed over to Dest, or
	// that is not recorded.
	How string `json:"how,omitempty"`
	// Worker and WorkerID are who acknowledged it, and TookMs how long that took
	// from the delivery on, as far as that is recorded.
	Worker   string `json:"worker,omitempty"`
	WorkerID string `json:"worker_id,omitempty"`
	TookMs   int64  `json:"took_ms,omitempty"`

	// Of a message that a broker holds: State is where it is in its life, and Place
	// the broker's queue that has it.
	State string `json:"state,omitempty"`
	Place string `json:"place,omitempty"`

	Events  []StoryEvent `json:"events"` // oldest first
	LeftOut uint64       `json:"left_out,omitempty"`
}

// Kinds of events in a message's story.
const (
	EventAttempt  = "attempt"  // a delivery that was not acknowledged
	EventRedriven = "redriven" // sent back from the dead letters
	EventReleased = "released" // let go before its time
	EventFollowed = "followed" // dead-lettered because of another message's end
)

// StoryEvent is one thing that happened to a message.
type StoryEvent struct {
	Kind         string    `json:"kind"`
	At           time.Time `json:"at"`
	Generation   uint32    `json:"generation"`
	Attempt      uint32    `json:"attempt"`
	Outcome      Outcome   `json:"outcome,omitempty"`
	TookMs       int64     `json:"took_ms,omitempty"`
	Worker       string    `json:"worker,omitempty"`
	WorkerID     string    `json:"worker_id,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Error        string    `json:"error,omitempty"` // its beginning
	Due          time.Time `json:"due,omitzero"`    // not again before
	By           string    `json:"by,omitempty"`
	TraceID      string    `json:"trace_id,omitempty"`
	SpanID       string    `json:"span_id,omitempty"`
}

// VerbEntry follows SubjectLane with a lane: EntryRequest → EntryState.
const VerbEntry = "entry"

// EntryRequest asks where a message is in a lane.
type EntryRequest struct {
	Key uint64 `json:"key"` // as in Trail
}

// EntryState says where a message is in a lane.
type EntryState struct {
	State      string    `json:"state"`                 // one of the names of states; empty: not there any more
	Worker     string    `json:"worker,omitempty"`      // in whose hands it is
	WorkerID   string    `json:"worker_id,omitempty"`   //
	Since      time.Time `json:"since,omitzero"`        // for how long
	Due        time.Time `json:"due,omitzero"`          // of one that pauses
	HandedBack int       `json:"handed_back,omitempty"` // how often since the lane has this owner
	Consumers  int       `json:"consumers"`             // of the queue
}

// States of a message.
const (
	StateReady      = "ready"     // until it is its turn and somebody has room
	StateInFlight   = "in_flight" // in a worker's hands
	StateJudged     = "judged"    // its delivery ended; what follows is being decided
	StateWithheld   = "withheld"  // until the workers have said what they run
	StatePaused     = "paused"    // until it is due
	StateUnreadable = "unreadable"
	StateMoving     = "moving"  // on its way to another service
	StateWaiting    = "waiting" // for its time
	StateDead       = "dead"
	StateEnded      = "ended"
)
