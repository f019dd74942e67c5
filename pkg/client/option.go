package client

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// DefaultDrainWindow is how long Close and Worker.Stop let handlers finish
// before their contexts are cancelled.
const DefaultDrainWindow = 25 * time.Second

// Option changes how Connect connects.
type Option interface{ connect(o *options) error }

// WorkOption changes how a route is worked, or a topic listened to or observed.
type WorkOption interface{ work(o *workOptions) error }

// HandleOption changes how a function is served.
type HandleOption interface{ handle(o *handleOptions) error }

type options struct {
	name      string
	named     bool // by the program itself
	namespace string
	logger    *slog.Logger
	window    time.Duration
	nats      []nats.Option
	tracing   trace.TracerProvider
}

type workOptions struct {
	name        string
	concurrency *int // nil: as the mesh says
	maxRetries  int
	backoff     time.Duration
	timeout     time.Duration

	kind         protocol.QueueType
	onDeadLetter protocol.OnDeadLetter
	maxPriority  uint8

	// Of subscriptions to a topic.
	execution  string
	observerID string
	group      string
	filters    json.RawMessage
	config     queueConfig
}

type handleOptions struct {
	concurrency int
}

type connectFunc func(o *options) error

func (f connectFunc) connect(o *options) error { return f(o) }

type workFunc func(o *workOptions) error

func (f workFunc) work(o *workOptions) error { return f(o) }

// NameOption is a name for people: of a program to Connect, of a subscription
// to Work.
type NameOption string

// Name names the program (Connect; default host/program) or the subscription
// (Work; default the route) in listings. A program that is given a name is told
// of as the publisher of what it publishes (`waybill why`), which each of its
// messages carries.
func Name(name string) NameOption { return NameOption(name) }

func (n NameOption) connect(o *options) error {
	if n == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the client's name is empty: leave client.Name out for the default")
	}
	o.name, o.named = string(n), true
	return nil
}

func (n NameOption) work(o *workOptions) error {
	if n == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the subscription's name is empty: leave client.Name out for the default, the route")
	}
	o.name = string(n)
	return nil
}

// Namespace is the one the program's name is a name in, and that of functions
// which name none. Default protocol.DefaultNamespace.
func Namespace(namespace string) Option {
	return connectFunc(func(o *options) error {
		o.namespace = namespace
		return scope.CheckNamespace(namespace)
	})
}

// Logger sets where the client logs. Default slog.Default(). Payloads are
// never logged.
func Logger(l *slog.Logger) Option {
	return connectFunc(func(o *options) error {
		if l == nil {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the logger is nil: leave client.Logger out for the default")
		}
		o.logger = l
		return nil
	})
}

// DrainWindow is how long Close and Worker.Stop let handlers finish before
// their contexts are cancelled. Default DefaultDrainWindow; 0 cancels at once.
func DrainWindow(d time.Duration) Option {
	return connectFunc(func(o *options) error {
		if d < 0 {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the drain window is %v: it may not be negative", d)
		}
		o.window = d
		return nil
	})
}

// NATS passes options to the NATS connection: credentials, TLS, a dialer. The
// client sets reconnection and the connection's handlers itself.
func NATS(opts ...nats.Option) Option {
	return connectFunc(func(o *options) error {
		o.nats = append(o.nats, opts...)
		return nil
	})
}

// ConcurrencyOption is how many handlers run at once.
type ConcurrencyOption int

// Concurrency is how many deliveries of a subscription (Work), or calls of a
// function (Handle), are handled at once in this client. Default
// protocol.DefaultConcurrency, or of a subscription what the broker of its queue
// is configured with. Work takes 0, which pauses the subscription.
func Concurrency(n int) ConcurrencyOption { return ConcurrencyOption(n) }

func (n ConcurrencyOption) work(o *workOptions) error {
	if n < 0 || n > protocol.MaxConcurrency {
		return protocol.Errorf(protocol.CodeInvalidArgs, "concurrency is %d: it is 0 (paused) to %d", n, protocol.MaxConcurrency)
	}
	o.concurrency = new(int(n))
	return nil
}

func (n ConcurrencyOption) handle(o *handleOptions) error {
	if n < 1 || n > protocol.MaxConcurrency {
		return protocol.Errorf(protocol.CodeInvalidArgs, "concurrency of a function is %d: it is 1 to %d", n, protocol.MaxConcurrency)
	}
	o.concurrency = int(n)
	return nil
}

// MaxRetries is the number of failed deliveries before a message is
// dead-lettered. Default protocol.DefaultMaxRetries, or what the broker of the
// queue is configured with; at least 1.
func MaxRetries(n int) WorkOption {
	return workFunc(func(o *workOptions) error {
		if n < 1 || n > protocol.MaxMaxRetries {
			return protocol.Errorf(protocol.CodeInvalidArgs, "max_retries is %d: it counts failed deliveries and is 1 to %d", n, protocol.MaxMaxRetries)
		}
		o.maxRetries = n
		return nil
	})
}

// Backoff is the delay before the second attempt; it doubles with each further
// one, to at most an hour or itself. Default protocol.DefaultBackoffMs; whole
// milliseconds, at least 1.
func Backoff(d time.Duration) WorkOption {
	return workFunc(func(o *workOptions) error {
		if d < time.Millisecond {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the backoff is %v: it is at least 1ms", d)
		}
		o.backoff = d
		return nil
	})
}

// Timeout is how long a delivery may take, from the moment the mesh sends it.
// The handler's context is cancelled then, and the attempt has failed. Default
// protocol.DefaultTimeoutMs; whole milliseconds, at least 1.
func Timeout(d time.Duration) WorkOption {
	return workFunc(func(o *workOptions) error {
		if d < time.Millisecond {
			return protocol.Errorf(protocol.CodeInvalidArgs, "the timeout is %v: it is at least 1ms", d)
		}
		o.timeout = d
		return nil
	})
}
