package protocol

import "strings"

// Version is the wire version, the second token of every subject.
const Version = "v1"

// Prefix begins every subject of the mesh.
const Prefix = "wb." + Version + "."

// Subjects programs publish to and are called on.
const (
	// SubjectPublishQueue is followed by <execution id>.<route>; the route may
	// have several tokens. Request; answered with a PublishAck once committed.
	SubjectPublishQueue = Prefix + "pub.queue."
	// SubjectPublishTopic is followed by <topic>. Request; answered with a
	// PublishAck once committed, also when nobody subscribes.
	SubjectPublishTopic = Prefix + "pub.topic."
	// SubjectPublishJob is followed by the name of a named queue. Request;
	// answered with a PublishAck once committed. The message has HeaderFunction.
	SubjectPublishJob = Prefix + "pub.job."
	// SubjectFunction is followed by <namespace>.<function id>.
	SubjectFunction = Prefix + "fn."
	// SubjectDeliver is followed by <user>.<subscription id>, or for a worker that
	// takes frames by <user>.<the worker's>.<subscription id>, and <user>.<the
	// worker's>.frames. A worker subscribes to the subjects the registry gave it
	// (Registered.Deliver, RegisteredSubscription.Deliver).
	SubjectDeliver = Prefix + "deliver."
	// DeliverFrames is the last token of a subject that frames of deliveries
	// arrive on (package frame).
	DeliverFrames = "frames"
	// SubjectOutcome is followed by <lane>.<token>. It is the reply subject of
	// a delivery. Whoever owns the lane when the answer comes takes it, even if
	// another router sent the delivery. In place of a token stands OutcomeFrame
	// for a frame of outcomes, to an owner that takes them: one that sent
	// deliveries in frames.
	SubjectOutcome = Prefix + "outcome."
	OutcomeFrame   = "frame"
	// SubjectKeepalive is followed by <worker id>; a Keepalive every
	// KeepaliveInterval, to the registry and every router.
	SubjectKeepalive = Prefix + "keepalive."
	// SubjectWorker is followed by <worker id>.<verb>: what a worker answers.
	SubjectWorker = Prefix + "worker."
)

// FunctionGroup is the queue group of those who serve a function: each call
// goes to one of them.
const FunctionGroup = "fn"

// Verbs a worker answers under SubjectWorker.
const (
	// VerbProbe asks only whether the worker's connection is there; the answer
	// is empty. Nobody there is NATS's "no responders".
	VerbProbe = "probe"
	// VerbClaims asks which deliveries of a lane the worker runs or has
	// finished (ClaimsRequest, Claims).
	VerbClaims = "claims"
)

// Subjects of the services. A subject served by every instance (no queue
// group) says so; the others are shared by the instances of the service.
const (
	SubjectHello        = Prefix + "registry.hello"         // Hello → Registered
	SubjectBye          = Prefix + "registry.bye"           // Bye → Empty
	SubjectWorkers      = Prefix + "registry.workers"       // WorkersRequest → WorkersPage
	SubjectSubscription = Prefix + "registry.subscriptions" // SubscriptionsRequest → SubscriptionsPage
	SubjectFunctions    = Prefix + "registry.functions"     // FunctionsRequest → FunctionsPage
	SubjectPolicy       = Prefix + "registry.policy"        // PolicyRequest → Policy

	SubjectObservers      = Prefix + "registry.observers"       // ObserversRequest → ObserversPage
	SubjectObserverRemove = Prefix + "registry.observer.remove" // ObserverRemoveRequest → ObserverRemoved

	SubjectSettings       = Prefix + "registry.settings"        // Empty → Settings
	SubjectSettingsChange = Prefix + "registry.settings.change" // SettingsChange → Settings

	SubjectConfig        = Prefix + "registry.config"         // ConfigRequest → StoredConfig
	SubjectConfigEdit    = Prefix + "registry.config.change"  // ConfigEdit → ConfigEdited
	SubjectConfigHistory = Prefix + "registry.config.history" // ConfigHistoryRequest → ConfigHistory

	SubjectDefine      = Prefix + "registry.define"       // DefineRequest → DefineReply
	SubjectDefinitions = Prefix + "registry.definitions"  // DefinitionsRequest → DefinitionsPage
	SubjectQueueRemove = Prefix + "registry.queue.remove" // QueueRemoveRequest → QueueRemoved

	SubjectExecutions      = Prefix + "registry.executions"       // ExecutionsRequest → ExecutionsPage, the closed ones
	SubjectExecutionClose  = Prefix + "registry.execution.close"  // ExecutionCloseRequest → Execution
	SubjectExecutionReopen = Prefix + "registry.execution.reopen" // ExecutionReopenRequest → Empty

	SubjectRouterExecutions = Prefix + "router.executions" // every router: ExecutionsRequest → ExecutionCountsPage of its ledgers
	SubjectRetryExecutions  = Prefix + "retry.executions"  // every retry instance: the same
	SubjectDeadExecutions   = Prefix + "dlq.executions"    // every dlq instance: the same

	SubjectQueues = Prefix + "router.queues" // every router: QueuesRequest → QueuesPage of its lanes

	SubjectPrepare = Prefix + "router.prepare" // every router: Placement → Prepared, if it could work by it
	SubjectBrokers = Prefix + "router.brokers" // every router: BrokersRequest → BrokersPage

	SubjectDecide        = Prefix + "retry.decide" // DecideRequest → DecideReply
	SubjectWaitingQueues = Prefix + "retry.queues" // every retry: QueuesRequest → QueuesPage, field Waiting

	SubjectWaitingList   = Prefix + "retry.list"   // WaitingListRequest → WaitingPage
	SubjectWaitingNow    = Prefix + "retry.now"    // WaitingActRequest → WaitingActReply: due at once
	SubjectWaitingCancel = Prefix + "retry.cancel" // WaitingActRequest → WaitingActReply: discarded

	SubjectDeadQueues  = Prefix + "dlq.queues"  // every dlq: QueuesRequest → QueuesPage, field Dead
	SubjectDeadList    = Prefix + "dlq.list"    // DeadListRequest → DeadPage
	SubjectDeadShow    = Prefix + "dlq.show"    // DeadShowRequest → DeadLetter
	SubjectDeadRedrive = Prefix + "dlq.redrive" // DeadActRequest → DeadActReply
	SubjectDeadDiscard = Prefix + "dlq.discard" // DeadActRequest → DeadActReply

	SubjectStats = Prefix + "stats" // every instance of every service: Empty → Stats
	SubjectReady = Prefix + "ready" // every instance of every service: Empty → Ready
)

// Subjects between services, of the mesh alone.
const (
	// SubjectLane is followed by <lane>.pub.<execution>.<route> or
	// <lane>.topic.<topic> or <lane>.job.<queue>, or <lane>.enqueue and <lane>.data for
	// calls of FunctionEnqueue and FunctionPublish: a publish passed on to the router that owns the lane,
	// with the publisher's own reply subject; and by <lane>.follow: a
	// WorkerChanged that is answered, with Empty, once the lane delivers as the
	// record says and has stored what is to outlive it; and by <lane>.owner
	// (VerbOwner), which that router answers with nothing.
	SubjectLane = Prefix + "lane."
	VerbOwner   = "owner"
	// VerbClose follows SubjectLane, SubjectWaitingLedger and SubjectDeadLedger
	// with a ledger: CloseRequest → CloseReply of its owner.
	VerbClose = "close"
	// VerbConfigure follows SubjectLane with a lane: Settings, answered with Empty
	// once the lane does as they say.
	VerbConfigure = "configure"
	// VerbDefine follows SubjectLane with a lane: LaneDefinition → LaneDefined.
	VerbDefine = "define"
	// VerbForget follows SubjectLane with a lane: ForgetRequest → ForgetReply.
	VerbForget = "forget"
	// SubjectHandover is followed by <ledger>: a batch of handovers to the
	// owner of that ledger, in the ledger's own encoding.
	SubjectHandover = Prefix + "handover."
	// SubjectDeadLedger is followed by <ledger>.<verb>: what one dlq instance
	// asks of the owner of a dlq ledger, in documents of that service alone.
	SubjectDeadLedger = Prefix + "dlq.ledger."
	// SubjectWaitingLedger is the same between retry instances.
	SubjectWaitingLedger = Prefix + "retry.ledger."
	// SubjectSpace answers an Empty with Space: a NATS that is one of the mesh's
	// own programs.
	SubjectSpace = Prefix + "nats.space"
	// SubjectEvent is followed by <service>.<what>. Events are hints; state is
	// read.
	SubjectEvent = Prefix + "event."
	// SubjectWorkerChanged carries a WorkerChanged for each change.
	SubjectWorkerChanged = SubjectEvent + "registry.worker"
	// SubjectSettingsChanged carries the Settings after each change.
	SubjectSettingsChanged = SubjectEvent + "registry.settings"
	// SubjectConfigChanged carries a ConfigChanged after each change of the
	// configuration.
	SubjectConfigChanged = SubjectEvent + "registry.config"
	// SubjectLeases is followed by <service>; an instance of it says, with an
	// empty message, that it has come, or that it has given ledgers free.
	SubjectLeases = SubjectEvent + "leases."
	// SubjectLoad carries a Load of each instance that owns ledgers, every
	// LoadInterval.
	SubjectLoad = SubjectEvent + "mesh.load"
)

// PublishQueueSubject is the subject a message for a route of an execution is
// published on. It does not check the names; package scope does.
func PublishQueueSubject(execution, route string) string {
	return SubjectPublishQueue + execution + "." + route
}

// PublishTopicSubject is the subject a message for a topic is published on.
func PublishTopicSubject(topic string) string { return SubjectPublishTopic + topic }

// PublishJobSubject is the subject a job for a named queue is published on.
func PublishJobSubject(queue string) string { return SubjectPublishJob + queue }

// FunctionSubject is the subject a function is called on.
func FunctionSubject(namespace, id string) string { return SubjectFunction + namespace + "." + id }

// DeliverSubject is the subject a subscription's deliveries arrive on. Only the
// registry forms it.
func DeliverSubject(user, subscription string) string {
	return SubjectDeliver + user + "." + subscription
}

// TrailSubject is where the log of a service, router, retry or dlq, is searched
// for a message: TrailRequest → TrailReply. It may take as long as reading the
// whole log.
func TrailSubject(service string) string { return Prefix + service + ".trail" }

// WorkerSubject is the subject a worker answers a verb on.
func WorkerSubject(worker, verb string) string { return SubjectWorker + worker + "." + verb }

// SplitOutcome takes the reply subject of a delivery apart. ok is false for
// any other subject.
func SplitOutcome(subject string) (lane, token string, ok bool) {
	rest, found := strings.CutPrefix(subject, SubjectOutcome)
	if !found {
		return "", "", false
	}
	lane, token, ok = strings.Cut(rest, ".")
	return lane, token, ok && lane != "" && token != "" && !strings.Contains(token, ".")
}

// DeadPresentSubject is where a lane asks the owner of a ledger of dead letters
// for those that groups of its queues wait for: DeadPresentRequest.
func DeadPresentSubject(ledger string) string {
	return SubjectDeadLedger + ledger + "." + VerbPresent
}

// VerbPresent is the verb of DeadPresentSubject.
const VerbPresent = "present"
