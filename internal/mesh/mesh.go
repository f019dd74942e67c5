// Package mesh is what every service needs to be one of the mesh: a
// connection, endpoints, a lifecycle, counters and logs.
package mesh

// Signatures first; the package's own files replace this one.

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// ConnectOptions say how a service reaches NATS.
type ConnectOptions struct {
	// URL of NATS; ignored with InProcess.
	URL string
	// InProcess, if set, connects to an embedded server without a socket. Bulk
	// goes over TCP all the same: it pipelines better.
	InProcess nats.InProcessConnProvider
	// Name of the connection, e.g. waybill-router.
	Name   string
	Logger *slog.Logger
	// NoBuffer gives a connection that never sends after a reconnect what was
	// published before it; ledgers need it.
	NoBuffer bool
	Options  []nats.Option
}

// Connect connects and keeps reconnecting for ever. It fails with UNAVAILABLE,
// naming the address, if NATS cannot be reached before ctx ends.
func Connect(ctx context.Context, o ConnectOptions) (*nats.Conn, error) { panic("stub") }

// Service is a NATS micro service and the other subscriptions of one instance.
type Service struct{}

// ServiceOptions of NewService.
type ServiceOptions struct {
	Name     string // router, retry, dlq, registry, gateway; the micro service is waybill-<name>
	Instance string
	Version  string
	Logger   *slog.Logger
}

func NewService(nc *nats.Conn, o ServiceOptions) (*Service, error) { panic("stub") }

// Stop stops taking requests and waits for those under way, at most until ctx ends.
func (s *Service) Stop(ctx context.Context) error { panic("stub") }

// Endpoint answers a JSON request on subject, shared by the service's
// instances. A handler's coded error is answered as its code; any other as
// INTERNAL. Each request runs in its own goroutine that Stop waits for.
func Endpoint[Q, R any](s *Service, name, subject string, h func(ctx context.Context, q Q) (R, error)) error {
	panic("stub")
}

// EveryInstance is Endpoint without sharing: each instance answers.
func EveryInstance[Q, R any](s *Service, name, subject string, h func(ctx context.Context, q Q) (R, error)) error {
	panic("stub")
}

// Request asks one instance. Nobody there is UNAVAILABLE; no answer before ctx
// ends is TIMEOUT; an error answer is its *protocol.Error.
func Request[R any](ctx context.Context, nc *nats.Conn, subject string, q any) (R, error) {
	panic("stub")
}

// Gather asks every instance and collects answers until none has come for
// stall (default 250 ms after the first) or ctx ends. Nobody there is no
// answers and no error.
func Gather[R any](ctx context.Context, nc *nats.Conn, subject string, q any, stall time.Duration) ([]R, error) {
	panic("stub")
}

// Lifecycle runs named cleanups last in, first out, once, bounded by a
// context; every error is kept.
type Lifecycle struct{}

func (l *Lifecycle) Add(name string, stop func(context.Context) error) { panic("stub") }
func (l *Lifecycle) Stop(ctx context.Context) error                    { panic("stub") }
