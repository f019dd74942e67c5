package protocol

import "time"

// Subjects of the gateway, shared by its instances.
const (
	SubjectWebhookSet    = Prefix + "gateway.webhook.set"    // WebhookSetRequest → WebhookSecret
	SubjectWebhookShow   = Prefix + "gateway.webhook.show"   // WebhookRequest → Webhook
	SubjectWebhookRemove = Prefix + "gateway.webhook.remove" // WebhookRequest → Empty
	SubjectWebhookRotate = Prefix + "gateway.webhook.rotate" // WebhookRotateRequest → WebhookSecret
	SubjectWebhooks      = Prefix + "gateway.webhooks"       // WebhooksRequest → WebhooksPage
)

// DefaultWebhookTimeoutMs is the time limit of one call of a webhook.
const DefaultWebhookTimeoutMs = 30000

// WebhookOverlap is how long a secret that was replaced still signs, beside its
// successor.
const WebhookOverlap = 24 * time.Hour

// WebhookSpec says which messages a webhook handles, and how: those of a route
// of an execution, or a copy of each of a topic. Zero values take the defaults
// of a subscription, except as said here.
type WebhookSpec struct {
	URL       string `json:"url"` // http or https
	Execution string `json:"execution,omitempty"`
	Route     string `json:"route,omitempty"`
	Topic     string `json:"topic,omitempty"`
	// ObserverID or Group name the durable queue of a topic. Default the group
	// webhook:<name>. An observer id is for one gateway at a time.
	ObserverID string `json:"observer_id,omitempty"`
	Group      string `json:"group,omitempty"`
	// Concurrency is the most calls at once of each gateway.
	Concurrency int       `json:"concurrency,omitempty"`
	MaxRetries  int       `json:"max_retries,omitempty"`
	BackoffMs   int64     `json:"backoff_ms,omitempty"`
	TimeoutMs   int64     `json:"timeout_ms,omitempty"` // default DefaultWebhookTimeoutMs
	Type        QueueType `json:"type,omitempty"`       // of the queue
	// SecretFile names a file in each gateway's directory of secrets, whose lines
	// sign the calls: then no secret is stored. A gateway that has no such file
	// does not work for the webhook.
	SecretFile string `json:"secret_file,omitempty"`
}

// Webhook is a handler that is called over HTTP. Its secrets are never shown.
type Webhook struct {
	Name string `json:"name"` // [A-Za-z0-9_-]{1,64}
	WebhookSpec
	Revision  uint64    `json:"revision"` // rises with each change
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// WebhookSetRequest defines a webhook, or defines it anew. CONFLICT: it is
// there, or has another revision; NOT_FOUND: there is none to replace.
type WebhookSetRequest struct {
	Name string `json:"name"`
	WebhookSpec
	// Secret signs its calls: whsec_ and 24 to 64 bytes in base64. Default a
	// random one, unless there is a SecretFile. One that is replaced keeps its
	// secrets.
	Secret  string `json:"secret,omitempty"`
	Replace bool   `json:"replace,omitempty"`
	// Revision is that of the webhook that is replaced; 0: whichever it has.
	Revision uint64 `json:"revision,omitempty"`
}

// WebhookSecret is a webhook with its newest secret, if that is new: this is the
// only time it is shown.
type WebhookSecret struct {
	Webhook
	Secret string `json:"secret,omitempty"`
}

// WebhookRequest names a webhook.
type WebhookRequest struct {
	Name string `json:"name"`
}

// WebhookRotateRequest gives a webhook another secret, by default a random one.
// Calls are signed with both for WebhookOverlap.
type WebhookRotateRequest struct {
	Name   string `json:"name"`
	Secret string `json:"secret,omitempty"`
}

// WebhooksRequest lists webhooks in order of name, after After, at most Limit
// (default and most 1,000).
type WebhooksRequest struct {
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

// WebhooksPage answers WebhooksRequest.
type WebhooksPage struct {
	Webhooks []Webhook `json:"webhooks"`
	More     bool      `json:"more,omitempty"`
}
