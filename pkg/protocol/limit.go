package protocol

import "time"

// Defaults and limits of the wire.
const (
	DefaultMaxRetries  = 3       // failed deliveries before the dead letter
	DefaultBackoffMs   = 1000    // base of the retry delay, milliseconds
	DefaultConcurrency = 10      // deliveries at once per subscription
	DefaultTimeoutMs   = 1800000 // a delivery's time limit on a queue: 30 minutes
	// DefaultObserverTimeoutMs is the time limit of a delivery to an observer,
	// MaxObserverTimeoutMs the longest.
	DefaultObserverTimeoutMs = 30000
	MaxObserverTimeoutMs     = DefaultTimeoutMs
	// DefaultObserverGraceMs and DefaultSubscriberRetentionMs are of Settings.
	DefaultObserverGraceMs       = 30000
	DefaultSubscriberRetentionMs = 30000
	MaxConcurrency               = 65536
	MaxMaxRetries                = 1000000

	MaxBackoffCap = time.Hour // the delay's cap, unless backoff_ms itself is larger
	MaxVanished   = 20        // vanishings (or incompletes) before the dead letter

	KeepaliveInterval = 5 * time.Second
	WorkerSilence     = 15 * time.Second // silent for longer: vanished
	LoadInterval      = time.Second
	DedupWindow       = 2 * time.Minute

	DefaultMaxPayload = 1 << 20 // bytes
	MaxHeaderBytes    = 64 << 10
	MaxErrorText      = 8 << 10 // bytes of error text kept; cut at a rune
	MaxDedupID        = 512
)
