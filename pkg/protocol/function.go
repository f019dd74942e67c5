package protocol

import "encoding/json"

// The mesh's own functions. Those of a project answer in every namespace, the
// provider's in DefaultNamespace alone. Their inputs are JSON objects without
// other fields than they know; the types of the inputs and outputs are below,
// EnqueueRequest and DefineRequest elsewhere.
const (
	FunctionDefine         = "queue::define"               // DefineRequest → DefineReply
	FunctionPublish        = "iii::durable::publish"       // DataRequest → null
	FunctionRedrive        = "iii::queue::redrive"         // TargetRequest → RedriveReply
	FunctionRedriveMessage = "iii::queue::redrive_message" // MessageRequest → MessageReply
	FunctionDiscardMessage = "iii::queue::discard_message" // MessageRequest → MessageReply

	FunctionListTopics  = "engine::queue::list_topics"  // Empty → []TopicSummary
	FunctionTopicStats  = "engine::queue::topic_stats"  // TargetRequest → TopicStats
	FunctionDLQTopics   = "engine::queue::dlq_topics"   // DeadTopicsRequest → []DeadTopic
	FunctionDLQMessages = "engine::queue::dlq_messages" // DeadMessagesRequest → []DeadMessage
	FunctionInfoOf      = "engine::functions::info"     // FunctionInfoRequest → FunctionDetail
	FunctionWorkersList = "engine::workers::list"       // WorkersListRequest → WorkersList
)

// What is not called: observers of the feeds receive an event with each change,
// FunctionOnEngineChange is the mesh's own. A call of one is FORBIDDEN.
const (
	FeedFunctions          = "engine::on-functions-changed" // FunctionsEvent
	FeedWorkers            = "engine::on-workers-changed"   // WorkersEvent
	FunctionOnEngineChange = "queue::on-engine-change"
)

// Topics that the registry publishes the events of the feeds to.
const (
	TopicFunctionsChanged = "waybill-functions-changed"
	TopicWorkersChanged   = "waybill-workers-changed"
)

// The names the mesh has among the workers of FunctionWorkersList: MeshWorker
// serves the functions of a project, ProviderWorker the provider's.
const (
	MeshWorker     = "queue"
	ProviderWorker = "queue-engine"
)

// BrokerBuiltin is the broker of a mesh that has no other.
const BrokerBuiltin = "builtin"

// ProjectFunctions answer in every namespace.
func ProjectFunctions() []string {
	return []string{FunctionPublish, FunctionDiscardMessage, FunctionRedrive, FunctionRedriveMessage, FunctionDefine}
}

// ProviderFunctions answer in DefaultNamespace alone.
func ProviderFunctions() []string {
	return []string{
		FunctionInfoOf, FunctionDLQMessages, FunctionDLQTopics, FunctionEnqueue,
		FunctionListTopics, FunctionTopicStats, FunctionWorkersList,
	}
}

// IsOwn says whether a function is the mesh's: nobody else serves it, and it
// takes no jobs.
func (f FunctionSpec) IsOwn() bool {
	where, own := ownFunctions[f.ID]
	return own && (where == "" || where == f.Namespace)
}

// ownFunctions are all of the mesh, with the namespace of those that are in one
// alone.
var ownFunctions = func() map[string]string {
	own := map[string]string{FunctionOnMessage: "", FeedFunctions: "", FeedWorkers: "", FunctionOnEngineChange: ""}
	for _, id := range ProjectFunctions() {
		own[id] = ""
	}
	for _, id := range ProviderFunctions() {
		own[id] = DefaultNamespace
	}
	return own
}()

// TargetRequest names a queue or a topic; the two fields mean the same, and one
// is given. A bare name is the named queue and all that subscribe to the topic of
// that name; /jobs/NAME and /topic/NAME are one of them, and a subscriber's queue
// and /queue/EXECUTION/ROUTE are themselves.
type TargetRequest struct {
	Queue string `json:"queue,omitempty"`
	Topic string `json:"topic,omitempty"`
}

// Target is the name that is given. INVALID_ARGS: none is, or both are.
func (r *TargetRequest) Target() (string, error) {
	if (r.Queue == "") == (r.Topic == "") {
		return "", Errorf(CodeInvalidArgs, "queue is %.64q and topic is %.64q: they mean the same, give one of them", r.Queue, r.Topic)
	}
	return r.Queue + r.Topic, nil
}

// DataRequest publishes data, any JSON value, to a topic.
type DataRequest struct {
	TargetRequest
	Data json.RawMessage `json:"data,omitempty"`
}

// RedriveReply says how many dead letters of what was named, Queue, were sent
// back.
type RedriveReply struct {
	Queue    string `json:"queue"`
	Redriven int64  `json:"redriven"`
}

// MessageRequest names a message among the dead letters of a queue or a topic.
type MessageRequest struct {
	TargetRequest
	MessageID string `json:"message_id"`
}

// MessageReply says of how many dead letters Redriven the message was: sent
// back, or discarded. An unknown id is 0.
type MessageReply struct {
	Queue     string `json:"queue"`
	MessageID string `json:"message_id"`
	Redriven  int64  `json:"redriven"`
}

// TopicSummary is a topic that somebody has subscribed to, or a named queue.
type TopicSummary struct {
	Name       string `json:"name"`
	BrokerType string `json:"broker_type"`
	// Subscribers are the queues that receive the topic and the workers that take
	// jobs of the named queue.
	Subscribers int `json:"subscriber_count"`
}

// TopicStats are all 0 for what is not there.
type TopicStats struct {
	Depth     int64 `json:"depth"` // stored and neither done nor dead
	Consumers int   `json:"consumer_count"`
	Dead      int64 `json:"dlq_depth"`
	// Config is the definition of a named queue; null for anything else.
	Config    *QueueDefinition `json:"config"`
	Delivered uint64           `json:"delivered"` // since the queues were first used
	Failed    uint64           `json:"failed"`
	// NoDeadLetters is why there are none, of a topic whose broker has none.
	NoDeadLetters string `json:"no_dead_letters,omitempty"`
	// Unknown is as in QueueInfo.
	Unknown string `json:"unknown,omitempty"`
}

// DeadTopicsRequest asks where dead letters are.
type DeadTopicsRequest struct {
	// IncludeEmpty asks for topics and named queues without any, too.
	IncludeEmpty bool `json:"include_empty,omitempty"`
}

// DeadTopic is a topic, a named queue, or a queue of an execution with its dead
// letters.
type DeadTopic struct {
	Topic      string `json:"topic"`
	BrokerType string `json:"broker_type"`
	Messages   int64  `json:"message_count"`
	// Unknown is as in QueueInfo.
	Unknown string `json:"unknown,omitempty"`
}

// DeadMessagesRequest asks for dead letters, oldest first.
type DeadMessagesRequest struct {
	TargetRequest
	Offset int `json:"offset,omitempty"`
	Limit  int `json:"limit,omitempty"` // default 50, at most 1,000
}

// DeadMessage is a dead letter.
type DeadMessage struct {
	ID string `json:"id"`
	// Payload is the JSON value that was published; what is no JSON is a string,
	// in base64 if it is no text either.
	Payload  json.RawMessage `json:"payload"`
	Error    string          `json:"error"`
	FailedAt int64           `json:"failed_at"` // ms since the epoch
	Retries  uint32          `json:"retries"`   // deliveries of it
	Size     int             `json:"size_bytes"`
	// Truncated: there was no room in the answer for the payload, which is null,
	// and for all of the error.
	Truncated bool `json:"truncated,omitempty"`
}

// FunctionInfoRequest asks about a function, by default in DefaultNamespace.
type FunctionInfoRequest struct {
	FunctionID string `json:"function_id"`
	Namespace  string `json:"namespace,omitempty"`
}

// FunctionDetail is a function and the names of the workers that serve it; the
// mesh's own is served by MeshWorker or ProviderWorker.
type FunctionDetail struct {
	FunctionID string   `json:"function_id"`
	Namespace  string   `json:"namespace"`
	WorkerName string   `json:"worker_name"` // the first of Workers
	Workers    []string `json:"workers"`
}

// WorkersListRequest asks for workers, optionally of one namespace.
type WorkersListRequest struct {
	Namespace string `json:"namespace,omitempty"`
}

// WorkersList has the workers that are there, in order of namespace and name,
// the mesh among them.
type WorkersList struct {
	Workers []ListedWorker `json:"workers"`
}

// ListedWorker is a worker for other workers: its id stays its own.
type ListedWorker struct {
	Name        string   `json:"name"`
	Namespace   string   `json:"namespace"`
	Status      string   `json:"status"`                    // connected
	ConnectedAt int64    `json:"connected_at_ms,omitempty"` // ms since the epoch; not of the mesh
	Functions   []string `json:"functions"`                 // their ids; of all namespaces
	Count       int      `json:"function_count"`
}

// WorkerName is a worker by the name it has given itself.
type WorkerName struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// WorkersEvent says that a worker has come or gone.
type WorkersEvent struct {
	Change string     `json:"change"` // joined or left
	Worker WorkerName `json:"worker"`
}

// What WorkersEvent.Change says.
const (
	WorkerJoined = "joined"
	WorkerLeft   = "left"
)

// FunctionsEvent says that a worker serves other functions than before.
type FunctionsEvent struct {
	Worker  WorkerName     `json:"worker"`
	Added   []FunctionSpec `json:"added,omitempty"`
	Removed []FunctionSpec `json:"removed,omitempty"`
}
