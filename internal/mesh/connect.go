package mesh

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// ConnectOptions say how a service reaches NATS.
type ConnectOptions struct {
	// URL of NATS; default nats://127.0.0.1:4222. Ignored with InProcess.
	URL string
	// InProcess, if set, connects to an embedded server without a socket: one
	// request is answered sooner. Bulk goes over TCP all the same, since it
	// pipelines better.
	InProcess nats.InProcessConnProvider
	// Name of the connection, for people, e.g. waybill-router.
	Name string
	// Logger of connection events; default none.
	Logger *slog.Logger
	// NoBuffer gives a connection that never sends after a reconnect what was
	// published before it; publishing while disconnected fails at once. Ledgers
	// need it.
	NoBuffer bool
	// Patience is how long Connect looks for a NATS that is not there, since it
	// may be starting too; default 5 s.
	Patience time.Duration
	// Options are applied last and may replace what is set here, except the
	// handlers of errors and of lost and found connections.
	Options []nats.Option
}

const (
	patience      = 5 * time.Second
	dialTimeout   = 2 * time.Second
	pingInterval  = 5 * time.Second // a dead peer is noticed within two
	reconnectMin  = 50 * time.Millisecond
	reconnectMax  = time.Second
	reconnectGrow = 2
)

// Connect connects, and from then on reconnects for ever. It fails with
// UNAVAILABLE, naming the address, if NATS cannot be reached within Patience or
// before ctx ends, and with FORBIDDEN at once if NATS refuses the credentials.
func Connect(ctx context.Context, o ConnectOptions) (*nats.Conn, error) {
	o.URL = cmp.Or(o.URL, nats.DefaultURL)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Patience, patience))
	defer cancel()
	opts := o.options()
	for try := 1; ; try++ {
		nc, err := nats.Connect(o.URL, opts...)
		if err == nil {
			return nc, nil
		}
		if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
			return nil, protocol.Errorf(protocol.CodeForbidden, "NATS at %s refuses the credentials of %s: %v", o.address(), o.Name, err)
		}
		if !Pause(ctx, reconnectDelay(try)) {
			return nil, protocol.Errorf(protocol.CodeUnavailable, "NATS at %s cannot be reached: %v; is it running there?", o.address(), err)
		}
	}
}

func (o ConnectOptions) address() string {
	if o.InProcess != nil {
		return "(embedded)"
	}
	return redacted(o.URL)
}

// redacted is a list of URLs without their passwords, as it may be shown.
func redacted(urls string) string {
	parts := strings.Split(urls, ",")
	for i, part := range parts {
		if u, err := url.Parse(strings.TrimSpace(part)); err == nil {
			parts[i] = u.Redacted()
		}
	}
	return strings.Join(parts, ",")
}

func (o ConnectOptions) options() []nats.Option {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("connection", o.Name)
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
	}
	if o.InProcess != nil {
		opts = append(opts, nats.InProcessServer(o.InProcess))
	}
	if o.NoBuffer {
		opts = append(opts, nats.ReconnectBufSize(-1))
	}
	opts = append(opts, o.Options...)
	return append(opts,
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { logAsync(log, sub, err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("NATS connection lost; reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("NATS connection is back", "url", nc.ConnectedUrlRedacted()) }),
	)
}

// logAsync reports what NATS reports of no call in particular. A slow consumer
// lost messages, which is worth knowing whatever else holds.
func logAsync(log *slog.Logger, sub *nats.Subscription, err error) {
	subject, dropped := "", 0
	if sub != nil {
		subject = sub.Subject
		dropped, _ = sub.Dropped()
	}
	if errors.Is(err, nats.ErrSlowConsumer) {
		log.Warn("a subscription is too slow, messages were dropped", "subject", subject, "dropped", dropped)
		return
	}
	log.Warn("NATS reports an error", "subject", subject, "error", err)
}

// reconnectDelay grows from reconnectMin to reconnectMax, with half of it
// random, so that a restarted server is not met by everybody at once.
func reconnectDelay(attempt int) time.Duration {
	d := reconnectMin
	for range attempt - 1 {
		if d *= reconnectGrow; d >= reconnectMax {
			d = reconnectMax
			break
		}
	}
	return d/2 + rand.N(d/2) //nolint:gosec // spreads reconnects, is no secret
}

// Pause waits for d; false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
