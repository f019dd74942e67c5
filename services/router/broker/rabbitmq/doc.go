// Package rabbitmq keeps queues on RabbitMQ 3.10 or later.
//
// A queue of the mesh is a quorum queue, or a classic one where priorities are
// asked for, and the lane it belongs to consumes it on a channel of its own. A
// message that failed is copied to a holding queue of its delay,
// <queue>.retry.<ms>, which dead-letters back, and one that is given up to
// <queue>.dlq; the copy is confirmed before the original is settled. What the
// broker counts is never read, and its limits are set out of the way: attempts
// are in a header of the mesh's.
package rabbitmq

import (
	"cmp"
	"log/slog"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// Name is the broker's name.
const Name = "rabbitmq"

// Defaults of Options.
const (
	DefaultURL = "amqp://localhost:5672"
)

// Options of New.
type Options struct {
	// Name is how the mesh's notes call the broker, which never changes; default Name.
	Name string
	// Shown is how people call it; default Name.
	Shown string
	// URL is where the broker is; default DefaultURL. Its password is never
	// shown.
	URL string
	// Prefix begins the names of observers' and groups' queues and of the
	// dead-letter exchange; default scope.DefaultAMQPPrefix.
	Prefix string
	// MaxAttempts and PrefetchCount hold for subscribers that say no max_retries
	// or concurrency; default protocol.DefaultMaxRetries and DefaultConcurrency.
	MaxAttempts, PrefetchCount int
	// PriorityField is the member of a message's data that is its priority;
	// default none.
	PriorityField string
	// MeshDelay has what failed wait in the mesh for its next try, and not at the
	// broker.
	MeshDelay bool
	Logger    *slog.Logger // default none
}

func (o Options) withDefaults() Options {
	o.Name, o.URL, o.Prefix = cmp.Or(o.Name, Name), cmp.Or(o.URL, DefaultURL), cmp.Or(o.Prefix, scope.DefaultAMQPPrefix)
	o.Shown = cmp.Or(o.Shown, o.Name)
	o.MaxAttempts, o.PrefetchCount = cmp.Or(o.MaxAttempts, protocol.DefaultMaxRetries), cmp.Or(o.PrefetchCount, protocol.DefaultConcurrency)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
