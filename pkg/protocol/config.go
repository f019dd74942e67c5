package protocol

import (
	"encoding/json"
	"time"
)

// Config is what holds in a mesh: its configuration, completed with the defaults.
// It is one document, which the registry keeps with its history.
type Config struct {
	Adapter               Adapter                    `json:"adapter"`
	SubscriberRetentionMs int64                      `json:"subscriber_retention_ms"` // as Settings has it
	QueueConfigs          map[string]QueueDefinition `json:"queue_configs"`           // named queues
	RunJobsIn             string                     `json:"run_jobs_in"`             // the namespace whose function runs a job
	Observers             ObserverSettings           `json:"observers"`
	Brokers               map[string]Broker          `json:"brokers,omitempty"` // beside the adapter, by name
	Routes                []Route                    `json:"routes,omitempty"`  // the first that matches counts
}

// Adapter says where messages are kept.
type Adapter struct {
	Name string `json:"name"`
	// Config is the adapter's own, a JSON object.
	Config json.RawMessage `json:"config,omitempty"`
}

// Settings are those of the configuration, of that revision.
func (c *Config) Settings(revision uint64) Settings {
	return Settings{Observers: c.Observers, SubscriberRetentionMs: c.SubscriberRetentionMs, Revision: revision}
}

// ConfigRequest reads the configuration as it is, or was at a Revision. NOT_FOUND:
// that is not among those kept.
type ConfigRequest struct {
	Revision uint64 `json:"revision,omitempty"`
}

// StoredConfig answers ConfigRequest.
type StoredConfig struct {
	ConfigRevision
	Config Config `json:"config"`
	// Set is what was set of it, a JSON object: the rest are defaults.
	Set json.RawMessage `json:"set"`
	// Placement is what it means for routers.
	Placement Placement `json:"placement"`
}

// ConfigRevision is one state of the configuration.
type ConfigRevision struct {
	// Revision rises with each change, not always by one; 0: nobody has
	// configured anything.
	Revision uint64    `json:"revision"`
	At       time.Time `json:"at,omitzero"`
	By       string    `json:"by,omitempty"` // who changed it, as they said
	// Restores is the revision that was rolled back to.
	Restores uint64 `json:"restores,omitempty"`
	// Differences are to the revision before.
	Differences []ConfigDifference `json:"differences,omitempty"`
}

// ConfigDifference is one key that differs. A value that is not there was, or is,
// not set.
type ConfigDifference struct {
	Key    string          `json:"key"` // its path, such as queue_configs.mail.concurrency
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// ConfigEdit changes the configuration, wholly or not at all: by Change or to what
// it was at Restore. INVALID_ARGS names the key of what cannot be; CONFLICT: it is
// not at Expect, or somebody else changed the same key meanwhile.
type ConfigEdit struct {
	// Change is a JSON merge patch: an object changes the keys that it has, null
	// takes a key out.
	Change json.RawMessage `json:"change,omitempty"`
	// Replace has Change stand in place of everything that was set.
	Replace bool `json:"replace,omitempty"`
	// Restore is a revision of the history.
	Restore uint64 `json:"restore,omitempty"`
	// Expect is the revision the change was made for; nil: whichever.
	Expect *uint64 `json:"expect,omitempty"`
	// By says who changes it, for the history, at most MaxConfigBy bytes.
	By string `json:"by,omitempty"`
	// Check only looks whether it could be.
	Check bool `json:"check,omitempty"`
	// Purge lets queues that are removed lose the jobs they have.
	Purge bool `json:"purge,omitempty"`
	// Abandon are the names of brokers that may be retired although they hold
	// messages, or cannot be looked at. Of those that the configuration does not
	// name any more it retires them.
	Abandon []string `json:"abandon,omitempty"`
}

// MaxConfigBy is the longest ConfigEdit.By.
const MaxConfigBy = 128

// ConfigEdited answers ConfigEdit once the whole mesh works as it says. Without
// Differences, there was nothing to change.
type ConfigEdited struct {
	ConfigRevision
	Warnings []string `json:"warnings,omitempty"`
}

// ConfigHistoryRequest lists the newest revisions, at most Limit (default all that
// are kept).
type ConfigHistoryRequest struct {
	Limit int `json:"limit,omitempty"`
}

// ConfigHistory answers ConfigHistoryRequest, newest first.
type ConfigHistory struct {
	Revisions []ConfigRevision `json:"revisions"`
}
