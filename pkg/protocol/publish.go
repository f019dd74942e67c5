package protocol

import "github.com/google/uuid"

// Empty is the document of a request or an answer with no fields.
type Empty struct{}

// MessageID names a message from its publish to its end, through retries and
// redrives. The mesh makes it (UUIDv7); its text is the usual 36 characters.
type MessageID = uuid.UUID

// PublishAck answers a publish that is committed. Its first fields are those
// of a JetStream PubAck, so a JetStream client library's publish works.
type PublishAck struct {
	Stream    string `json:"stream"` // WAYBILL_<broker>
	Seq       uint64 `json:"seq"`    // the log's sequence; several messages may share it
	Duplicate bool   `json:"duplicate,omitempty"`
	MessageID string `json:"message_id"` // of the first publish, for a duplicate
	Broker    string `json:"broker"`
	// Durability says what held when this was answered: fsync, interval
	// (written, fsynced later), replicated, memory, none.
	Durability string `json:"durability"`
	// Listeners is the number of subscriptions (topic) or consumers (queue)
	// there were.
	Listeners int `json:"listeners"`
}

// Durability words of PublishAck.
const (
	DurabilityFsync      = "fsync"
	DurabilityInterval   = "interval"
	DurabilityReplicated = "replicated"
	DurabilityMemory     = "memory"
	DurabilityNone       = "none"
)
