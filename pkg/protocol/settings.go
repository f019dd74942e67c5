package protocol

import "time"

// Settings hold for the whole mesh. They are one document, which the registry
// keeps and routers follow.
type Settings struct {
	Observers ObserverSettings `json:"observers"`
	// SubscriberRetentionMs is how long the queue of an observer or a group goes
	// on receiving its topic when nobody observes any more; 0 ends it at once. A
	// change is for those who leave after it.
	SubscriberRetentionMs int64 `json:"subscriber_retention_ms"`
	// Revision orders the changes; 0: nobody has set anything.
	Revision uint64 `json:"revision,omitempty"`
	// Placed is the Placement's number that goes with them.
	Placed uint64 `json:"placed,omitempty"`
}

// ObserverSettings are about observers.
type ObserverSettings struct {
	// ActivationTimeoutMs is the time limit of a delivery to an observer that has
	// not asked for one of its own; at most MaxObserverTimeoutMs.
	ActivationTimeoutMs int64 `json:"activation_timeout_ms"`
	// ObserverGraceMs is how long the id of an observer whose worker is gone is
	// kept for the worker of the same name and namespace.
	ObserverGraceMs int64 `json:"observer_grace_ms"`
}

// SettingsChange changes the settings that it names.
type SettingsChange struct {
	Observers             ObserverSettingsChange `json:"observers,omitzero"`
	SubscriberRetentionMs *int64                 `json:"subscriber_retention_ms,omitempty"`
}

// ObserverSettingsChange is of ObserverSettings.
type ObserverSettingsChange struct {
	ActivationTimeoutMs *int64 `json:"activation_timeout_ms,omitempty"`
	ObserverGraceMs     *int64 `json:"observer_grace_ms,omitempty"`
}

// DefaultSettings hold where nobody has set anything.
func DefaultSettings() Settings {
	return Settings{
		Observers: ObserverSettings{
			ActivationTimeoutMs: DefaultObserverTimeoutMs, ObserverGraceMs: DefaultObserverGraceMs,
		},
		SubscriberRetentionMs: DefaultSubscriberRetentionMs,
	}
}

// Apply is s with the change. INVALID_ARGS: a time is not one that may be.
func (c SettingsChange) Apply(s Settings) (Settings, error) {
	for _, one := range []struct {
		name      string
		value     *int64
		target    *int64
		low, high int64
	}{
		{"observers.activation_timeout_ms", c.Observers.ActivationTimeoutMs, &s.Observers.ActivationTimeoutMs, 1, MaxObserverTimeoutMs},
		{"observers.observer_grace_ms", c.Observers.ObserverGraceMs, &s.Observers.ObserverGraceMs, 0, maxSettingMs},
		{"subscriber_retention_ms", c.SubscriberRetentionMs, &s.SubscriberRetentionMs, 0, maxSettingMs},
	} {
		if one.value == nil {
			continue
		}
		if *one.value < one.low || *one.value > one.high {
			return s, Errorf(CodeInvalidArgs, "%s is %d: it is from %d to %d", one.name, *one.value, one.low, one.high)
		}
		*one.target = *one.value
	}
	return s, nil
}

// ActivationTimeout is ActivationTimeoutMs as a duration.
func (s *Settings) ActivationTimeout() time.Duration { return ms(s.Observers.ActivationTimeoutMs) }

// ObserverGrace is ObserverGraceMs as a duration.
func (s *Settings) ObserverGrace() time.Duration { return ms(s.Observers.ObserverGraceMs) }

// SubscriberRetention is SubscriberRetentionMs as a duration.
func (s *Settings) SubscriberRetention() time.Duration { return ms(s.SubscriberRetentionMs) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// maxSettingMs of times without a reason to be shorter: a year.
const maxSettingMs = int64(365 * 24 * time.Hour / time.Millisecond)
