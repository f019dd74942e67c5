package protocol

import "time"

// QueuesRequest lists queues in order of name, after After, at most Limit
// (default 1,000), optionally of one execution, of one topic's subscribers, of
// all topics' (Subscribers), or exactly one queue. Each instance answers for the
// ledgers it owns.
type QueuesRequest struct {
	Topic       string `json:"topic,omitempty"`
	Subscribers bool   `json:"subscribers,omitempty"`
	Execution   string `json:"execution,omitempty"`
	Queue       string `json:"queue,omitempty"`
	After       string `json:"after,omitempty"`
	Limit       int    `json:"limit,omitempty"`
}

// QueuesPage answers QueuesRequest.
type QueuesPage struct {
	Share
	Instance string      `json:"instance"`
	Queues   []QueueInfo `json:"queues"`
	More     bool        `json:"more,omitempty"`
}

// Share is for how many of its service's ledgers an instance answers. One of an earlier
// version says nothing.
type Share struct {
	Ledgers int `json:"ledgers,omitempty"`
	Total   int `json:"total,omitempty"` // that the service has
}

// QueueInfo is what one service knows of a queue; the counts of several
// services add up.
type QueueInfo struct {
	Queue     string `json:"queue"` // as in Subscription
	Execution string `json:"execution,omitempty"`
	Route     string `json:"route,omitempty"`
	Topic     string `json:"topic,omitempty"` // of an observer's, a group's or a listener's queue
	// DetachedAt is since when nobody takes the messages of an observer's or a
	// group's queue. Receiving says whether it receives its topic; if nobody comes
	// back it does until ReceivesUntil.
	DetachedAt    time.Time `json:"detached_at,omitzero"`
	Receiving     bool      `json:"receiving,omitempty"`
	ReceivesUntil time.Time `json:"receives_until,omitzero"`
	Ready         int64     `json:"ready"`     // stored and in no worker's hands
	InFlight      int64     `json:"in_flight"` // in a worker's hands
	Waiting       int64     `json:"waiting"`   // for their next attempt
	Dead          int64     `json:"dead"`
	Moving        int64     `json:"moving"` // decided, on their way to another service
	// Unknown is why Ready, Waiting and Dead have only what is in the mesh: a broker
	// has messages of the queue, and cannot be asked. Empty: they are all.
	Unknown   string `json:"unknown,omitempty"`
	Bytes     int64  `json:"bytes"`
	Consumers int    `json:"consumers"`
	// Type is that of the queue's newest subscription; empty for TypeConcurrent.
	Type QueueType `json:"type,omitempty"`
	// Groups are the groups of a FIFO queue that hold something, HeldGroups those
	// of them whose first message waits for its next attempt, BlockedGroups those
	// that wait for a dead letter (DeadLetterBlock).
	Groups        int `json:"groups,omitempty"`
	HeldGroups    int `json:"held_groups,omitempty"`
	BlockedGroups int `json:"blocked_groups,omitempty"`
	// Named is the name of a named queue. Unserved are the functions that jobs of
	// it wait for, those with most jobs first, 100 at most.
	Named    string             `json:"named,omitempty"`
	Unserved []UnservedFunction `json:"unserved,omitempty"`
	// Counters of the queue since it was first used.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// Counters, by name. Counter names are the same in Stats, QueueInfo and
// /metrics (waybill_<name>_total).
const (
	CountPublished    = "published"
	CountDeduplicated = "deduplicated"
	CountDelivered    = "delivered" // deliveries that came to an end in a worker's hands
	CountAcknowledged = "acknowledged"
	CountFiltered     = "filtered"
	CountFailed       = "failed"
	CountRejected     = "rejected"
	CountIncomplete   = "incomplete"
	CountRetried      = "retried"
	CountDeadLettered = "dead_lettered"
	CountRedriven     = "redriven"
	CountDiscarded    = "discarded"
	CountSuperseded   = "superseded" // a settlement withheld: what it names has moved on
	CountLost         = "lost"       // a settlement that could not be recorded
	CountVanished     = "vanished"
	CountRefused      = "refused"
	CountHandedBack   = "handed_back" // deliveries that a worker which shut down gave back
	CountTaken        = "taken"       // messages accepted from another ledger
	CountSent         = "sent"        // messages decided to go to another ledger
	CountWrittenOff   = "written_off" // messages an operator gave up with a damaged part of the log
	CountDropped      = "dropped"     // of those discarded, messages that a broker kept for nobody
)

// CountTakeovers is how often the ledgers of a service changed hands, in Stats
// alone.
const CountTakeovers = "takeovers"

// Stats is one instance's answer on SubjectStats.
type Stats struct {
	Share
	Service  string             `json:"service"`
	Instance string             `json:"instance"`
	Version  string             `json:"version"`
	Counters map[string]uint64  `json:"counters"`
	Gauges   map[string]float64 `json:"gauges"`
	// Routes are those of the counters that belong to queues, by what the queues
	// are: a route, <topic>::observer:<id>, <topic>::@<group>, <topic>::listen; all
	// executions of a route together. Beyond MaxStatsRoutes the rest is under
	// OtherRoutes.
	Routes map[string]map[string]uint64 `json:"routes,omitempty"`
	// Brokers are those outside of the mesh as a router sees them, by name. Gauges have
	// what they hold too.
	Brokers map[string]BrokerStats `json:"brokers,omitempty"`
}

const (
	// MaxStatsRoutes bounds Stats.Routes.
	MaxStatsRoutes = 1024
	// OtherRoutes is no name of a route.
	OtherRoutes = "(other)"
)

// Ready is one instance's answer on SubjectReady.
type Ready struct {
	Service  string   `json:"service"`
	Instance string   `json:"instance"`
	Ready    bool     `json:"ready"`
	Waiting  []string `json:"waiting,omitempty"` // what it is not ready for
	Notes    []string `json:"notes,omitempty"`   // what is not as it should be, and hinders nobody
}

// Space is what the disk of NATS has left, and its size, in bytes.
type Space struct {
	Free  int64 `json:"free"`
	Total int64 `json:"total"`
}

// Load is an instance's live messages and bytes over the ledgers it owns.
type Load struct {
	Service  string `json:"service"`
	Instance string `json:"instance"`
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes"`
}
