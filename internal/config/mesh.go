package config

import (
	"fmt"
	"math"
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Where the jobs of named queues run.
const (
	RunInEnqueuer = "enqueuer" // in the namespace they were enqueued in
	RunInWorker   = "worker"   // in that of whoever takes them
)

// Values of adapter.config.store_method.
const (
	StoreFile   = "file_based"
	StoreMemory = "in_memory"
)

// Names of adapters.
const (
	AdapterBuiltin  = "builtin" // which needs no broker
	AdapterRabbitMQ = "rabbitmq"
	AdapterArtemis  = "artemis"
	AdapterPulsar   = "pulsar"
	AdapterRedis    = "redis"
)

// maxMillis is a year.
const maxMillis = 365 * 24 * 60 * 60 * 1000

// Keys are those of a mesh.
func Keys() []Key {
	return []Key{
		*adapterKey(),
		{
			Name: "subscriber_retention_ms", Kind: Number, Default: int64(protocol.DefaultSubscriberRetentionMs), Most: maxMillis,
			Doc: "How long the queue of an observer or a group goes on receiving its topic when nobody observes any more; 0 ends it at once.",
		},
		{
			Name: "run_jobs_in", Default: RunInEnqueuer, Allowed: []string{RunInEnqueuer, RunInWorker},
			Doc: "The namespace whose function runs a job: the one it was enqueued in, or that of whoever takes it, which needs rabbitmq.",
		},
		{Name: "queue_configs", Kind: Named, Keys: queueKeys(), Always: []string{protocol.DefaultQueue}, Check: scope.CheckQueue, Doc: "Named queues, by name."},
		{Name: "brokers", Kind: Named, Choices: adapterKeys(outside), Keys: brokerKeys(), Check: checkBrokerName, Doc: "Brokers beside the adapter, by name. Routes say what is kept on them."},
		{Name: "routes", Kind: List, Keys: routeKeys(), Doc: "Which queues and topics are on which broker: the first whose pattern matches. What none names is on the adapter."},
		{Name: "observers", Kind: Section, Keys: observerKeys(), Doc: "What holds for observers."},
	}
}

func adapterKey() *Key {
	return &Key{
		Name: "adapter", Kind: Choice, Default: AdapterBuiltin, Doc: "Where messages are kept that no route names a broker for.",
		Choices: adapterKeys(anyKind),
		Aliases: map[string]string{StoreMemory: AdapterBuiltin, StoreFile: AdapterBuiltin},
		Warn:    oldNames,
	}
}

func builtinKeys() []Key {
	return []Key{
		{
			Name: "store_method", Default: StoreFile, Allowed: []string{StoreFile, StoreMemory},
			Doc: "On disk, or in memory alone: what is in memory is lost when NATS ends.",
		},
		{
			Name: "file_path", Check: NotEmpty,
			Doc: "Where the store of waybill up lies, below its data directory unless it is a path from the root; settled at the first start. Default: the data directory itself.",
		},
		{
			Name: "save_interval_ms", Kind: Number, Default: int64(5000), Least: 1, Most: maxMillis, Doc: "Accepted: there is no snapshot, the log is its own.",
			Warn: always("it has no effect: each publish is stored as it comes, and the log is compacted by its size"),
		},
	}
}

func rabbitKeys() []Key {
	return []Key{
		{Name: "amqp_url", Default: DefaultAMQPURL, Check: addressOf(DefaultAMQPURL, "amqp", "amqps"), Doc: "Where RabbitMQ is."},
		{Name: "prefix", Default: scope.DefaultAMQPPrefix, Check: scope.CheckQueue, Doc: "What the names of observers' and groups' queues, of named queues and of exchanges begin with."},
		{
			Name: "max_attempts", Kind: Number, Default: int64(protocol.DefaultMaxRetries), Least: 1, Most: protocol.MaxMaxRetries,
			Doc: "The tries of a message whose subscriber says no max_retries.",
		},
		{
			Name: "prefetch_count", Kind: Number, Default: int64(protocol.DefaultConcurrency), Least: 1, Most: protocol.MaxConcurrency,
			Doc: "How many messages a subscriber has at once that says no concurrency; in order it is one.",
		},
		{
			Name: "queue_mode", Default: string(protocol.TypeStandard), Doc: "The type of subscribers that say none: standard or fifo; anything else is standard.",
			Warn: unlessOneOf("it is not known, and is as good as "+string(protocol.TypeStandard), string(protocol.TypeStandard), string(protocol.TypeFIFO)),
		},
		{
			Name: "priority_field", Check: member,
			Doc: "The member of a message's data that is its priority, a whole number, where its subscriber has max_priority.",
		},
		delayKey(),
	}
}

// DefaultAMQPURL is where RabbitMQ is by default.
const DefaultAMQPURL = "amqp://localhost:5672"

// unlessOneOf warns of any value but these.
func unlessOneOf(text string, known ...string) func(any) string {
	return func(given any) string {
		if word, _ := given.(string); slices.Contains(known, word) {
			return ""
		}
		return text
	}
}

func observerKeys() []Key {
	return []Key{
		{
			Name: "activation_timeout_ms", Kind: Number, Default: int64(protocol.DefaultObserverTimeoutMs), Least: 1, Most: protocol.MaxObserverTimeoutMs,
			Doc: "The time limit of a delivery to an observer that asks for none of its own.",
		},
		{
			Name: "observer_grace_ms", Kind: Number, Default: int64(protocol.DefaultObserverGraceMs), Most: maxMillis,
			Doc: "How long the id of an observer whose worker is gone is kept for it.",
		},
	}
}

func queueKeys() []Key {
	d := protocol.DefaultQueueDefinition()
	return []Key{
		{Name: "type", Default: string(d.Type), Allowed: []string{string(protocol.TypeStandard), string(protocol.TypeFIFO)}, Doc: "fifo runs the jobs of a group in order."},
		{Name: "message_group_field", Check: member, Doc: "The member of a job's data that names its group; fifo needs it."},
		{Name: "concurrency", Kind: Number, Default: int64(d.Concurrency), Least: 1, Most: protocol.MaxConcurrency, Doc: "Jobs at once, in the whole mesh."},
		{Name: "max_retries", Kind: Number, Default: int64(d.MaxRetries), Least: 1, Most: protocol.MaxMaxRetries, Doc: "Failed deliveries before the dead letter."},
		{Name: "backoff_ms", Kind: Number, Default: d.BackoffMs, Least: 1, Most: maxMillis, Doc: "The pause before the second attempt; it doubles."},
		{Name: "timeout_ms", Kind: Number, Default: d.TimeoutMs, Least: 1, Most: maxMillis, Doc: "The time limit of an attempt."},
		{Name: "max_priority", Kind: Number, Most: math.MaxUint8, Doc: "Makes it a queue with priorities; it cannot be changed."},
		{Name: "priority_field", Check: member, Doc: "The member of a job's data that is its priority, a whole number."},
		{Name: "on_dead_letter", Allowed: []string{string(protocol.DeadLetterContinue), string(protocol.DeadLetterBlock), string(protocol.DeadLetterDivert)}, Doc: "What becomes of a fifo group after a dead letter."},
		{Name: "poll_interval_ms", Kind: Number, Most: maxMillis, Doc: "Accepted: nothing is polled."},
		{Name: "redeliver_on_engine_restart", Kind: Flag, Doc: "Accepted: what a restart interrupted always comes again."},
	}
}

// oldNames warns of an alias that says more than it means.
func oldNames(adapter any) string {
	of, _ := adapter.(map[string]any)
	settings, _ := of[choiceConfig].(map[string]any)
	if of[choiceName] == StoreMemory && settings["store_method"] == nil {
		return fmt.Sprintf("%s is an old name of %s, which stores on disk unless config.store_method says %s", StoreMemory, AdapterBuiltin, StoreMemory)
	}
	return ""
}

func always(text string) func(any) string { return func(any) string { return text } }

// NotEmpty refuses text that is empty.
func NotEmpty(text string) error {
	if text == "" {
		return errEmpty
	}
	return nil
}

var errEmpty = fmt.Errorf("it is empty: leave the key out for the default")

// member checks the name of a member of messages' data.
func member(text string) error {
	if text == "" || len(text) > protocol.MaxGroup {
		return fmt.Errorf("it is the name of a member of the data, 1 to %d bytes", protocol.MaxGroup)
	}
	return nil
}
