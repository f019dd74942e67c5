package protocol

import (
	"encoding/json"
	"time"
)

// Hello declares all a worker wants; a later one replaces it whole. The
// answer is Registered.
type Hello struct {
	WorkerID string `json:"worker_id"` // made by the worker, unguessable (22 random characters)
	Name     string `json:"name"`      // for people, e.g. host/program
	// Namespace is the one Name is a name in: under the same name in the same
	// namespace a program that starts again has the observers it left behind.
	// Default DefaultNamespace.
	Namespace     string             `json:"namespace,omitempty"`
	SDK           string             `json:"sdk,omitempty"`
	Revision      uint64             `json:"revision"` // counts the worker's declarations
	Outcomes      []Outcome          `json:"outcomes,omitempty"`
	Subscriptions []SubscriptionSpec `json:"subscriptions,omitempty"`
	Functions     []DeclaredFunction `json:"functions,omitempty"`
	// Frames says that the worker takes several deliveries in one message
	// (package frame), and subscribes to Registered.Deliver.
	Frames bool `json:"frames,omitempty"`
	// Jobs says that the worker takes jobs for the functions it declares, on the
	// subjects that Registered.Functions names.
	Jobs bool `json:"jobs,omitempty"`
}

// Kind says what a subscription takes.
type Kind string

// The kinds.
const (
	// KindWork takes the messages of a queue, which it shares with all others
	// that work it. It is the default.
	KindWork Kind = "work"
	// KindListen takes a copy of each message of a topic while it is there, in
	// one attempt: a failed delivery is dead-lettered for this subscription
	// alone. What it has not handled when its worker is gone is discarded.
	KindListen Kind = "listen"
	// KindObserve takes a copy of each message of a topic from a durable queue
	// of its own, or of its group, with retries that reach nobody else.
	KindObserve Kind = "observe"
)

// SubscriptionSpec asks for the deliveries of one route of an execution, or of
// one topic. Zero values take the defaults of this package, except that
// Concurrency is a pointer: 0 pauses.
type SubscriptionSpec struct {
	Ref string `json:"ref"` // the worker's own name for it, unique in the worker
	// Execution and Route name the queue of KindWork. A subscription to a topic
	// may name the execution it belongs to, which stands in its name.
	Execution string `json:"execution"`
	Route     string `json:"route"`
	Kind      Kind   `json:"kind,omitempty"`  // default KindWork
	Topic     string `json:"topic,omitempty"` // of KindListen and KindObserve
	// ObserverID names the durable queue of a KindObserve: who comes back under
	// the same id finds its backlog. Default one that is the same as long as the
	// worker keeps its id.
	ObserverID string `json:"observer_id,omitempty"`
	// Group shares one durable queue among all observers of the topic that name
	// the group.
	Group string `json:"group,omitempty"`
	// Target is the function of the worker that an observer is for. While the
	// worker does not serve it, the observer is not active (OBSERVER_NOT_ACTIVE)
	// and its messages wait. Its namespace is by default the worker's.
	Target *FunctionSpec `json:"target,omitempty"`
	// Filters say which messages an observer wants: the others are acknowledged
	// unseen (pkg/filter). QueueConfig tunes its queue; MaxRetries, BackoffMs and
	// the other fields that say the same beat it.
	Filters     json.RawMessage `json:"filters,omitempty"`
	QueueConfig json.RawMessage `json:"queue_config,omitempty"`
	// FunctionID and Args are another way to observe a topic: FunctionOnMessage,
	// and an object with topic (or queue), group, max_retries (or maxRetries),
	// backoff_ms (or backoffDelayMs) and queue_config. They stand instead of Kind
	// and of the fields of those names.
	FunctionID  string          `json:"function_id,omitempty"`
	Args        json.RawMessage `json:"args,omitempty"`
	Name        string          `json:"name,omitempty"` // for people; default the route
	Concurrency *int            `json:"concurrency,omitempty"`
	MaxRetries  int             `json:"max_retries,omitempty"`
	BackoffMs   int64           `json:"backoff_ms,omitempty"`
	TimeoutMs   int64           `json:"timeout_ms,omitempty"`
	// Type is how the queue's messages are handled; default TypeConcurrent.
	Type QueueType `json:"type,omitempty"`
	// OnDeadLetter is for TypeFIFO; default DeadLetterContinue.
	OnDeadLetter OnDeadLetter `json:"on_dead_letter,omitempty"`
	// MaxPriority makes the queue one with priorities: of its messages the one
	// with the highest is handled first, all above MaxPriority being the same. 0
	// is a queue without, and a FIFO queue has none.
	MaxPriority uint8 `json:"max_priority,omitempty"`
	// Draining keeps the deliveries in hand and asks for no more.
	Draining bool `json:"draining,omitempty"`
}

// FunctionSpec names a function.
type FunctionSpec struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
}

// DeclaredFunction is a function that a worker says it serves.
type DeclaredFunction struct {
	FunctionSpec
	// Concurrency is how many jobs for it the worker takes at once; 0: as many as
	// their queues allow.
	Concurrency int `json:"concurrency,omitempty"`
}

// ServedFunction is a function of a worker as the registry knows it.
type ServedFunction struct {
	DeclaredFunction
	// Deliver is the subject that jobs for it arrive on; empty: the worker takes
	// none.
	Deliver string `json:"deliver,omitempty"`
}

// Registered answers Hello.
type Registered struct {
	User        string `json:"user"`
	KeepaliveMs int64  `json:"keepalive_ms"`
	// Deliver is one subject, with a wildcard, for what arrives for all
	// subscriptions, alone or in frames (DeliverFrames). It is there if the
	// worker asked for frames; RegisteredSubscription.Deliver is one it matches.
	Deliver       string                   `json:"deliver,omitempty"`
	Subscriptions []RegisteredSubscription `json:"subscriptions,omitempty"`
	// Functions are where jobs arrive, of a worker that asked for them.
	Functions []ServedFunction `json:"functions,omitempty"`
	Warnings  []string         `json:"warnings,omitempty"`
	// Refused are subscriptions that were not taken because of what others have;
	// the rest of the declaration stands. A worker may ask again later.
	Refused []RefusedSubscription `json:"refused,omitempty"`
}

// RefusedSubscription says why a SubscriptionSpec was not taken.
type RefusedSubscription struct {
	Ref   string `json:"ref"`
	Error Error  `json:"error"`
}

// RegisteredSubscription is what a SubscriptionSpec became.
type RegisteredSubscription struct {
	Ref     string `json:"ref"`
	ID      string `json:"id"`
	Name    string `json:"name"`    // <name>:<first 8 characters of the execution id>
	Queue   string `json:"queue"`   // its name in the ledger, see Subscription
	Deliver string `json:"deliver"` // the subject to subscribe to
}

// Bye ends a worker's registration.
type Bye struct {
	WorkerID string `json:"worker_id"`
	// Revision is the worker's newest Hello, so that one which is late on its
	// way is refused. 0: none is.
	Revision uint64 `json:"revision,omitempty"`
}

// Keepalive is published by each worker on SubjectKeepalive + its id. It
// carries a reply subject; only a registry that does not know the worker
// answers (KeepaliveReply), and the worker says Hello again.
type Keepalive struct {
	Revision uint64 `json:"revision"`
	InFlight int    `json:"in_flight"`
}

// KeepaliveReply answers a Keepalive of an unknown worker or revision.
type KeepaliveReply struct {
	Known bool `json:"known"`
}

// ClaimsRequest asks a worker what it holds of a lane.
type ClaimsRequest struct {
	Lane  string `json:"lane"`
	Epoch uint64 `json:"epoch"`
	// Frames says that the lane's owner takes outcomes in frames.
	Frames bool `json:"frames,omitempty"`
}

// Claims answers ClaimsRequest: the tokens of deliveries whose handler runs,
// and the outcomes of those that ended lately, which may have been lost.
type Claims struct {
	Running  []string       `json:"running,omitempty"`
	Finished []FinishedWork `json:"finished,omitempty"`
}

// FinishedWork is an outcome a worker remembers.
type FinishedWork struct {
	Token   string  `json:"token"`
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	// RetryAfterMs is HeaderRetryAfter.
	RetryAfterMs int64 `json:"retry_after_ms,omitempty"`
}

// Worker is the registry's record of a worker.
type Worker struct {
	ID            string           `json:"id"`
	Name          string           `json:"name"`
	Namespace     string           `json:"namespace,omitempty"` // empty: DefaultNamespace
	User          string           `json:"user"`
	SDK           string           `json:"sdk,omitempty"`
	Revision      uint64           `json:"revision"`
	Since         time.Time        `json:"since"`
	Subscriptions []Subscription   `json:"subscriptions,omitempty"`
	Functions     []ServedFunction `json:"functions,omitempty"`
	// Frames is the subject of deliveries in frames, empty for a worker that does
	// not take them.
	Frames     string `json:"frames,omitempty"`
	Gone       bool   `json:"gone,omitempty"` // in WorkerChanged alone: the worker left or expired
	KVRevision uint64 `json:"kv_revision"`    // orders the changes of one worker
}

// Subscription is a worker's consumer of a queue, as the router dispatches to
// it, with every default filled in.
type Subscription struct {
	ID     string `json:"id"`
	Ref    string `json:"ref"`
	Name   string `json:"name"`
	Worker string `json:"worker"`
	// Queue is /queue/<execution>/<route>, or of a topic <topic>::observer:<id>,
	// <topic>::@<group> or <topic>::listen:<id of the subscription>.
	Queue      string `json:"queue"`
	Execution  string `json:"execution"`
	Route      string `json:"route"`
	Kind       Kind   `json:"kind,omitempty"` // empty: KindWork
	Topic      string `json:"topic,omitempty"`
	ObserverID string `json:"observer_id,omitempty"`
	Group      string `json:"group,omitempty"`
	// Target is the function an observer is for; Inactive says that its worker
	// does not serve it now. It is Draining then.
	Target      *FunctionSpec   `json:"target,omitempty"`
	Inactive    bool            `json:"inactive,omitempty"`
	Filters     json.RawMessage `json:"filters,omitempty"` // as in SubscriptionSpec
	Deliver     string          `json:"deliver"`
	Concurrency int             `json:"concurrency"`
	MaxRetries  int             `json:"max_retries"`
	BackoffMs   int64           `json:"backoff_ms"`
	TimeoutMs   int64           `json:"timeout_ms"`
	// TimeoutDefault: TimeoutMs is the setting activation_timeout_ms as it was at
	// registration, and follows it.
	TimeoutDefault bool `json:"timeout_default,omitempty"`
	// RetriesDefault and ConcurrencyDefault: MaxRetries and Concurrency are the
	// defaults of the broker that had the queue at registration, and follow it.
	RetriesDefault     bool `json:"retries_default,omitempty"`
	ConcurrencyDefault bool `json:"concurrency_default,omitempty"`
	// Type is empty for TypeConcurrent, OnDeadLetter for DeadLetterContinue.
	Type         QueueType    `json:"type,omitempty"`
	OnDeadLetter OnDeadLetter `json:"on_dead_letter,omitempty"`
	MaxPriority  uint8        `json:"max_priority,omitempty"`
	Draining     bool         `json:"draining,omitempty"`
	Tuning
	// Since is when it was registered, or its policy last changed.
	Since time.Time `json:"since"`
}

// WorkerChanged is the event of a worker's registration, change or end; Worker
// is the whole record after it.
type WorkerChanged struct {
	Worker Worker `json:"worker"`
	// Settings as the registry knows them.
	Settings *Settings `json:"settings,omitempty"`
}

// WorkersRequest reads worker records in order of id, after After, at most
// Limit (default 1,000).
type WorkersRequest struct {
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

// WorkersPage answers WorkersRequest.
type WorkersPage struct {
	Workers  []Worker  `json:"workers"`
	More     bool      `json:"more,omitempty"`
	Settings *Settings `json:"settings,omitempty"`
}

// SubscriptionsRequest lists subscriptions, optionally of one execution or to
// one topic, in order of queue and id, beginning with number Offset, at most
// Limit.
type SubscriptionsRequest struct {
	Execution string `json:"execution,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Offset    int    `json:"offset,omitempty"`
	Limit     int    `json:"limit,omitempty"` // default 1,000
	// Effective asks what holds of each where its queue is, too.
	Effective bool `json:"effective,omitempty"`
}

// SubscriptionsPage answers SubscriptionsRequest.
type SubscriptionsPage struct {
	Subscriptions []SubscriptionInfo `json:"subscriptions"`
	More          bool               `json:"more,omitempty"`
}

// SubscriptionInfo is a Subscription for people.
type SubscriptionInfo struct {
	Subscription
	WorkerName string `json:"worker_name"`
	Namespace  string `json:"namespace,omitempty"` // of the worker; empty: DefaultNamespace
	// Effective is there if it was asked for, and a router has said it.
	Effective *Effective `json:"effective,omitempty"`
}

// PolicyRequest asks for the policy of a queue.
type PolicyRequest struct {
	Queue string `json:"queue"` // as in Subscription
}

// Policy is what the newest subscription of a queue asked for, kept when its
// worker is gone; the defaults for a queue that never had one.
type Policy struct {
	MaxRetries int   `json:"max_retries"`
	BackoffMs  int64 `json:"backoff_ms"`
	TimeoutMs  int64 `json:"timeout_ms"`
	// As in Subscription.
	Type         QueueType    `json:"type,omitempty"`
	OnDeadLetter OnDeadLetter `json:"on_dead_letter,omitempty"`
	MaxPriority  uint8        `json:"max_priority,omitempty"`
	Tuning
}

// FunctionsRequest lists functions, optionally of one namespace.
type FunctionsRequest struct {
	Namespace string `json:"namespace,omitempty"`
}

// FunctionsPage answers FunctionsRequest.
type FunctionsPage struct {
	Functions []FunctionInfo `json:"functions"`
}

// FunctionInfo is a function and the workers that serve it.
type FunctionInfo struct {
	FunctionSpec
	Workers []string `json:"workers"`
}
