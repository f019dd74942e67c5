// Package redis has topics on Redis, by publish and subscribe, and nothing else:
// Redis keeps no message, so there are no queues, no tries after the first, and no
// dead letters.
//
// A topic is a channel. The lane a topic belongs to subscribes to it while somebody
// observes it or listens to it, and has what arrives in memory until a worker has
// handled it. What arrives while nobody takes it, or faster than it is taken, is
// dropped and counted.
package redis

import (
	"cmp"
	"log/slog"
)

// Name is the broker's name.
const Name = "redis"

// DefaultURL is where the broker is by default.
const DefaultURL = "redis://localhost:6379"

// Options of New.
type Options struct {
	// Name is how the mesh's notes call the broker, which never changes; default Name.
	Name string
	// Shown is how people call it; default Name.
	Shown string
	// URL is where Redis is, redis:// or, with TLS, rediss://, with user and
	// password if it asks for them; default DefaultURL. The password is never
	// shown.
	URL    string
	Logger *slog.Logger // default none
}

func (o Options) withDefaults() Options {
	o.Name, o.URL = cmp.Or(o.Name, Name), cmp.Or(o.URL, DefaultURL)
	o.Shown = cmp.Or(o.Shown, o.Name)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
