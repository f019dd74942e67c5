// Package pulsar keeps queues on Apache Pulsar.
//
// A queue of the mesh is a topic of Pulsar's with one shared subscription
// (Key_Shared if its order counts), and the lane it belongs to is its consumer. A
// topic of the mesh is one too, with a subscription per observer or group; what is
// one subscriber's alone, its retries and what is redriven to it, is in a topic of
// its own. A message that failed is sent again to be delivered later, one that is
// given up is sent to <topic>-dlq; the original is acknowledged once the broker has
// the copy. A message is never refused by a negative acknowledgement, and what the
// broker counts is never read: attempts are in a property of the mesh's.
//
// The broker counts, lists and removes what it has over HTTP only, so its admin
// interface is needed besides.
package pulsar

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/waybill-mq/waybill/pkg/scope"
)

// Name is the broker's name.
const Name = "pulsar"

// Where the broker is by default.
const (
	DefaultURL      = "pulsar://localhost:6650"
	DefaultAdminURL = "http://localhost:8080"
)

// DefaultRetryDelay is how long a failed message waits by default.
const DefaultRetryDelay = time.Second

// Options of New.
type Options struct {
	// Name is how the mesh's notes call the broker, which never changes; default Name.
	Name string
	// Shown is how people call it; default Name.
	Shown string
	// URL is where the broker is, pulsar:// or, with TLS, pulsar+ssl://, with a JSON web
	// token as the password if it asks for one; AdminURL where its admin interface is,
	// http:// or https://, which is asked with the same. Defaults: DefaultURL,
	// DefaultAdminURL. The token is never shown.
	URL, AdminURL string
	// Tenant and Namespace are where topics are; default public and default.
	Tenant, Namespace string
	// RetryDelay is how long every failed message waits before its next try, in whole
	// milliseconds; default DefaultRetryDelay.
	RetryDelay time.Duration
	// MeshDelay has what failed wait in the mesh instead, each for its own delay.
	MeshDelay bool
	Logger    *slog.Logger // default none
}

func (o Options) withDefaults() Options {
	o.Name, o.URL, o.AdminURL = cmp.Or(o.Name, Name), cmp.Or(o.URL, DefaultURL), cmp.Or(o.AdminURL, DefaultAdminURL)
	o.Shown = cmp.Or(o.Shown, o.Name)
	o.Tenant, o.Namespace = cmp.Or(o.Tenant, scope.DefaultPulsarTenant), cmp.Or(o.Namespace, scope.DefaultPulsarNamespace)
	o.RetryDelay = cmp.Or(o.RetryDelay, DefaultRetryDelay)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
