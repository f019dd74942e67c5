package protocol

import "encoding/json"

// A job is a message for a function. It waits in a named queue, which belongs to
// the whole mesh and has a QueueDefinition, until somebody who serves the
// function takes it.

// Headers of a job, beside those of every message. They are delivered with it.
const (
	// HeaderFunction is the id of the job's function, HeaderNamespace the
	// namespace it is served in (absent: DefaultNamespace). Whoever publishes on
	// SubjectPublishJob sets them; in any other publish they are refused.
	HeaderFunction  = "Waybill-Function"
	HeaderNamespace = "Waybill-Namespace"
	// HeaderReceipt is the enqueuer's own name for the job, at most MaxReceipt
	// bytes.
	HeaderReceipt = "Waybill-Receipt"
)

// FunctionEnqueue is the function that enqueues a job: EnqueueRequest →
// EnqueueReply. The mesh serves it in DefaultNamespace.
const FunctionEnqueue = "engine::queue::enqueue"

// DefaultQueue is the name of the queue that needs no definition.
const DefaultQueue = "default"

// MaxReceipt is the longest receipt of a job, in bytes.
const MaxReceipt = 256

// EnqueueRequest asks for a job. Data is any JSON value, and what the function is
// given.
type EnqueueRequest struct {
	Queue string `json:"queue"`
	// Namespace is that of the function; default DefaultNamespace.
	Namespace  string          `json:"namespace,omitempty"`
	FunctionID string          `json:"function_id"`
	Data       json.RawMessage `json:"data"`
	// ReceiptID is the enqueuer's own name for the job, and the answer. Default
	// the message id.
	ReceiptID string `json:"messageReceiptId,omitempty"` //nolint:tagliatelle // others call it so
	// Traceparent and Baggage are the trace the job belongs to, instead of those
	// in the request's headers.
	Traceparent string `json:"traceparent,omitempty"`
	Baggage     string `json:"baggage,omitempty"`
}

// EnqueueReply says that the job is stored.
type EnqueueReply struct {
	ReceiptID string `json:"messageReceiptId"` //nolint:tagliatelle // others call it so
}

// DefineRequest defines a named queue, or changes it. Config is a
// QueueDefinition of which anything may be left out; absent: all of it.
type DefineRequest struct {
	Queue  string          `json:"queue"`
	Config json.RawMessage `json:"config,omitempty"`
}

// DefineReply says that the queue works as asked for, and will after a restart.
type DefineReply struct {
	Queue string `json:"queue"`
	// Changed is false if it was defined so before.
	Changed bool `json:"changed"`
	// Revision is that of the configuration that has the definition.
	Revision uint64 `json:"revision,omitempty"`
	// Warnings are about fields that have no effect.
	Warnings []string `json:"warnings,omitempty"`
}

// QueueRemoveRequest removes the definition of a named queue. CONFLICT: it holds
// jobs, waiting ones too, and Purge does not say to discard them.
type QueueRemoveRequest struct {
	Queue string `json:"queue"`
	Purge bool   `json:"purge,omitempty"`
}

// QueueRemoved answers QueueRemoveRequest.
type QueueRemoved struct {
	Queue     string `json:"queue"`
	Removed   bool   `json:"removed"` // false: there was no such definition
	Discarded int64  `json:"discarded,omitempty"`
	Revision  uint64 `json:"revision,omitempty"`
}

// DefinitionsRequest lists named queues in order of name, after After, at most
// Limit (default 1,000), or exactly one.
type DefinitionsRequest struct {
	Queue string `json:"queue,omitempty"`
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
	// Effective asks what holds of each where the queue is, too.
	Effective bool `json:"effective,omitempty"`
}

// DefinitionsPage answers DefinitionsRequest. The definitions are those of
// Revision of the configuration: pages of different ones are of different times.
type DefinitionsPage struct {
	Revision uint64         `json:"revision"`
	Queues   []DefinedQueue `json:"queues"`
	More     bool           `json:"more,omitempty"`
}

// DefinedQueue is a named queue.
type DefinedQueue struct {
	Queue  string          `json:"queue"`
	Config QueueDefinition `json:"config"`
	// Effective is there if it was asked for, and a router has said it.
	Effective *Effective `json:"effective,omitempty"`
}

// ConfigChanged is the event of a change of the configuration.
type ConfigChanged struct {
	Revision uint64 `json:"revision"`
}

// LaneDefinition tells the owner of a lane how a named queue of it is defined
// from now on; it is answered, with LaneDefined, once the lane does so.
type LaneDefinition struct {
	Queue string `json:"queue"`
	// Config is nil for a queue that is not defined any more: the lane refuses
	// jobs for it from then on, and with Purge discards those it has.
	Config *QueueDefinition `json:"config,omitempty"`
	Purge  bool             `json:"purge,omitempty"`
	// Check asks for the answer alone, and changes nothing.
	Check bool `json:"check,omitempty"`
	// Revision orders the definitions; 0: of none that is stored.
	Revision uint64 `json:"revision,omitempty"`
}

// LaneDefined answers LaneDefinition: the jobs that the lane has of the queue,
// and how many it has discarded now.
type LaneDefined struct {
	Jobs      int64 `json:"jobs"`
	Discarded int64 `json:"discarded,omitempty"`
}

// UnservedFunction is a function that jobs of a queue wait for.
type UnservedFunction struct {
	FunctionSpec
	Jobs int64 `json:"jobs"`
	// Looks is how often the router has looked for somebody who serves it: when
	// the first job came, and when somebody came or went since.
	Looks int64 `json:"looks"`
}
