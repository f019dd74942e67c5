package protocol

import "time"

// ExecutionState says what may still happen to an execution.
type ExecutionState string

// States of executions. One that nobody closed is open, and has no record.
const (
	ExecutionOpen ExecutionState = "open"
	// ExecutionClosed takes no publishes; what is there is finished and retried.
	ExecutionClosed ExecutionState = "closed"
	// ExecutionPurged takes no publishes; what is there is dropped.
	ExecutionPurged ExecutionState = "purged"
	// ExecutionGone was closed or purged and is empty: nothing is left but the
	// tombstone that refuses publishes until Execution.Until.
	ExecutionGone ExecutionState = "gone"
)

// TombstoneTime is how long a closed execution that is empty refuses late
// publishes. After it the id may be used again.
const TombstoneTime = 24 * time.Hour

// ExecutionCloseRequest closes an execution, or purges it: then what is there
// is dropped. Repeating it has no effect; a purge of a closed one is one.
type ExecutionCloseRequest struct {
	Execution string `json:"execution"`
	Purge     bool   `json:"purge,omitempty"`
}

// ExecutionReopenRequest lets a closed execution take publishes again. What was
// dropped is not brought back.
type ExecutionReopenRequest struct {
	Execution string `json:"execution"`
}

// Execution is a closed execution. From the answer to a close on, no publish is
// taken anywhere.
type Execution struct {
	Execution string         `json:"execution"`
	State     ExecutionState `json:"state"`
	ClosedAt  time.Time      `json:"closed_at"`
	Until     time.Time      `json:"until,omitzero"` // gone: when the id may be used again
	// Left is the number of messages there were when it was answered, in all
	// services; only in the answer to a close.
	Left int64 `json:"left,omitempty"`
	// Unknown is why there may be more of them: a broker that has some cannot be asked.
	Unknown string `json:"unknown,omitempty"`
}

// ExecutionsRequest lists executions in order of id, after After, at most Limit
// (default 1,000).
type ExecutionsRequest struct {
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

// ExecutionsPage are the closed executions that the registry knows of.
type ExecutionsPage struct {
	Executions []Execution `json:"executions"`
	More       bool        `json:"more,omitempty"`
}

// ExecutionCountsPage is what one instance of router, retry or dlq has of
// executions in the ledgers it owns.
type ExecutionCountsPage struct {
	Share
	Instance   string            `json:"instance"`
	Executions []ExecutionCounts `json:"executions"`
	More       bool              `json:"more,omitempty"`
}

// ExecutionCounts are the sums over an execution's queues; those of several
// services add up, except Queues.
type ExecutionCounts struct {
	Execution string `json:"execution"`
	Queues    int64  `json:"queues"`
	Ready     int64  `json:"ready"`
	InFlight  int64  `json:"in_flight"`
	Waiting   int64  `json:"waiting"`
	Dead      int64  `json:"dead"`
	Unknown   string `json:"unknown,omitempty"` // as in QueueInfo
	Moving    int64  `json:"moving"`
	Bytes     int64  `json:"bytes"`
	Consumers int64  `json:"consumers"`
}

// CloseRequest tells the owner of one ledger what an execution is now. It is
// answered when the ledger has recorded it, and may be repeated.
type CloseRequest struct {
	Execution string         `json:"execution"`
	State     ExecutionState `json:"state"`           // open, closed or purged
	Until     int64          `json:"until,omitempty"` // when the tombstone ends, ns since the epoch; 0: not yet known
	Forget    bool           `json:"forget,omitempty"`
}

// CloseReply is what the ledger has of the execution.
type CloseReply struct {
	Live    int64  `json:"live"`    // messages, those on their way elsewhere too
	Queues  int64  `json:"queues"`  // that are not forgotten
	Arrived uint64 `json:"arrived"` // messages since the ledger was opened or the execution closed
	Epoch   uint64 `json:"epoch"`   // of the ledger
	// Unknown is why it is not known how many messages there are; Live is one at least
	// then.
	Unknown string `json:"unknown,omitempty"`
}
