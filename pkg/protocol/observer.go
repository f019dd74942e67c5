package protocol

import "time"

// FunctionOnMessage is the function whose observers are the subscribers of
// topics. It is the mesh's own: a call of it is FORBIDDEN.
const FunctionOnMessage = "queue::on-message"

// DefaultNamespace is that of workers and functions that name none.
const DefaultNamespace = "default"

// ObserversRequest lists observers and groups in order of their queues, after
// After, at most Limit (default 1,000): of one topic, exactly one queue, or all;
// with Orphans those alone that nobody takes messages of.
type ObserversRequest struct {
	Topic   string `json:"topic,omitempty"`
	Queue   string `json:"queue,omitempty"` // as in Subscription
	Orphans bool   `json:"orphans,omitempty"`
	After   string `json:"after,omitempty"`
	Limit   int    `json:"limit,omitempty"`
}

// ObserversPage answers ObserversRequest. It may have fewer than were asked for;
// if there are others, the next page is that after Next.
type ObserversPage struct {
	Observers []ObserverInfo `json:"observers"`
	Next      string         `json:"next,omitempty"`
}

// ObserverState is what becomes of what is published to the topic.
type ObserverState string

// The states.
const (
	ObserverActive    ObserverState = "active"     // somebody takes the messages
	ObserverNotActive ObserverState = "not_active" // whoever is there takes none: OBSERVER_NOT_ACTIVE, or it drains
	ObserverRetained  ObserverState = "retained"   // nobody is there, and the queue receives until ReceivesUntil
	ObserverOrphan    ObserverState = "orphan"     // nobody is there, and the queue keeps what it holds; on a broker it receives on
)

// ObserverInfo is an observer or a group: its queue, who takes its messages, and
// whom its id belongs to.
type ObserverInfo struct {
	QueueInfo
	ObserverID string             `json:"observer_id,omitempty"`
	Group      string             `json:"group,omitempty"`
	State      ObserverState      `json:"state"`
	Members    []SubscriptionInfo `json:"members,omitempty"`
	Owner      *ObserverOwner     `json:"owner,omitempty"` // not of a group
}

// ObserverOwner is the worker that has an observer's id, or had it last.
type ObserverOwner struct {
	WorkerName string    `json:"worker_name"`
	Namespace  string    `json:"namespace"`
	Since      time.Time `json:"since"`
	LeftAt     time.Time `json:"left_at,omitzero"` // zero: it has it now
	// KeptUntil is how long the id is kept for the worker that has left it behind.
	KeptUntil time.Time `json:"kept_until,omitzero"`
}

// ObserverRemoveRequest removes an observer or a group that nobody observes as
// any more, with all that its queue holds: what is ready, what waits, and its
// dead letters. CONFLICT: somebody does. NOT_FOUND: there is none.
type ObserverRemoveRequest struct {
	Queue string `json:"queue"` // as in Subscription
	By    string `json:"by,omitempty"`
}

// ObserverRemoved says what was discarded with it.
type ObserverRemoved struct {
	Queue       string `json:"queue"`
	Discarded   int64  `json:"discarded"`    // messages that were ready or waited
	DeadLetters int64  `json:"dead_letters"` // besides
}

// ForgetRequest asks a lane's owner, on SubjectLane + lane + VerbForget, to end
// an observer's queue that nobody takes messages of, and discard what it holds.
type ForgetRequest struct {
	Queue string `json:"queue"`
}

// ForgetReply answers ForgetRequest.
type ForgetReply struct {
	Known     bool  `json:"known"`     // the lane had something of it
	Discarded int64 `json:"discarded"` // now
	Left      int64 `json:"left"`      // messages that it cannot discard yet
	// DeadLetters are those that a broker had, and that went with its queue.
	DeadLetters int64 `json:"dead_letters,omitempty"`
}
