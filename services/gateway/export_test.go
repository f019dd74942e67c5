package gateway

// What the fuzz tests read.
var (
	RetryAfter   = retryAfter
	CheckWebhook = checkWebhook
	SecretKey    = secretKey
)
