// Package artemis keeps queues on Apache ActiveMQ Artemis, over STOMP 1.2.
//
// A queue of the mesh is a durable anycast queue, and the lane it belongs to
// consumes it. A topic is a multicast address, from which a divert per observer
// or group leads into a queue of its own. A message that failed is sent again,
// scheduled by the broker, and one that is given up is sent to <queue>.dlq; the
// original is acknowledged once the broker has the copy. Nothing is ever
// refused by NACK, which destroys it, nor acknowledged for a subscription that
// has ended, which ends the connection. What the broker counts is never read:
// attempts are in a header of the mesh's.
package artemis

import (
	"cmp"
	"log/slog"
)

// Name is the broker's name.
const Name = "artemis"

// DefaultURL is where the broker is by default.
const DefaultURL = "stomp://localhost:61613"

// Options of New.
type Options struct {
	// Name is how the mesh's notes call the broker, which never changes; default Name.
	Name string
	// Shown is how people call it; default Name.
	Shown string
	// URL is where its STOMP acceptor is, stomp:// or, with TLS, stomps://, with
	// user and password if it asks for them; default DefaultURL. The password is
	// never shown.
	URL string
	// MeshDelay has what failed wait in the mesh for its next try, and not at the
	// broker.
	MeshDelay bool
	Logger    *slog.Logger // default none
}

func (o Options) withDefaults() Options {
	o.Name, o.URL = cmp.Or(o.Name, Name), cmp.Or(o.URL, DefaultURL)
	o.Shown = cmp.Or(o.Shown, o.Name)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
