package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/tracing"
)

const (
	dialTimeout = 5 * time.Second
	// answerTimeout bounds what is asked of the mesh with a context that has no
	// deadline.
	answerTimeout = 10 * time.Second
)

// Client is a connection to a mesh. Its methods may be called from any
// goroutine. It reconnects by itself, for ever.
type Client struct {
	nc        *nats.Conn
	address   string // as Connect was told, without a password
	name      string
	by        string // ends the inboxes of publishers: a dot, and what says who publishes
	namespace string
	log       *slog.Logger
	window    time.Duration
	link      *gate // open while connected
	presence  *presence
	crew      crew            // runs all handlers
	sender    *Publisher      // of Publish and PublishMany
	tracer    *tracing.Tracer // nil: no spans are made
	places    sync.Map        // by subject: *tracing.Place
	placed    atomic.Int64    // how many there are

	mu         sync.Mutex
	publishers map[*Publisher]struct{}
	closing    bool
	closed     chan struct{} // Close has finished
	closeErr   error
}

// Connect connects to the mesh's NATS at address, for example
// nats://127.0.0.1:4222. It fails with UNAVAILABLE if that cannot be reached
// before ctx ends, 5 s at most, and with INVALID_ARGS for a bad option.
func Connect(ctx context.Context, address string, opts ...Option) (*Client, error) {
	o := options{name: defaultName(), namespace: protocol.DefaultNamespace, logger: slog.Default(), window: DefaultDrainWindow, tracing: otel.GetTracerProvider()}
	for _, opt := range opts {
		if err := opt.connect(&o); err != nil {
			return nil, err
		}
	}
	c := &Client{
		address: redact(address), name: o.name, by: o.publisher(), namespace: o.namespace, log: o.logger, window: o.window,
		tracer:     tracing.New(o.tracing, library+"/client", libraryVersion()),
		link:       newGate(),
		publishers: make(map[*Publisher]struct{}),
		closed:     make(chan struct{}),
	}
	c.presence = newPresence(c)
	var err error
	if c.nc, err = nats.Connect(address, c.natsOptions(ctx, &o)...); err != nil {
		return nil, protocol.Errorf(protocol.CodeUnavailable, "no mesh answers at %s (%v): start one with `waybill up`, or give the address of another", redact(address), err)
	}
	c.link.open()
	if c.sender, err = c.NewPublisher(Window(senderWindow)); err != nil {
		c.nc.Close()
		return nil, err
	}
	return c, nil
}

// publisher is Client.by.
func (o *options) publisher() string {
	if !o.named {
		return "."
	}
	return "." + protocol.PublisherToken(o.name) + "."
}

func (c *Client) natsOptions(ctx context.Context, o *options) []nats.Option {
	timeout := dialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(deadline)), time.Millisecond)
	}
	return append(o.nats,
		nats.Name(o.name),
		nats.Timeout(timeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		// What could not be sent is not sent later behind the caller's back:
		// publishes wait for the connection, outcomes are remembered.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.disconnected(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.reconnected() }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { c.natsError(s, err) }),
	)
}

func (c *Client) disconnected(err error) {
	c.link.shut()
	c.presence.lost()
	c.mu.Lock()
	closing := c.closing
	publishers := make([]*Publisher, 0, len(c.publishers))
	for p := range c.publishers {
		publishers = append(publishers, p)
	}
	c.mu.Unlock()
	for _, p := range publishers {
		p.connectionLost()
	}
	if !closing {
		c.log.Warn("lost the connection to the mesh; reconnecting", "error", err)
	}
}

func (c *Client) reconnected() {
	c.link.open()
	c.presence.again()
	c.log.Info("connected to the mesh again", "server", c.nc.ConnectedUrlRedacted())
}

func (c *Client) natsError(s *nats.Subscription, err error) {
	subject := ""
	if s != nil {
		subject = s.Subject
	}
	c.log.Error("the connection reported an error", "subject", subject, "error", err)
}

// Close hands everything back and disconnects. No more deliveries are taken;
// handlers finish within the drain window (or until ctx ends, if that is
// sooner), then their contexts are cancelled and what they hold is handed back
// unspent; publishes under way are waited for. The error says what could not be
// finished. Closing again waits for the first Close.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closing
	c.closing = true
	c.mu.Unlock()
	if !first {
		select {
		case <-c.closed:
			return c.closeErr
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.closeErr = errors.Join(c.presence.close(ctx), c.closePublishers(ctx))
	c.crew.close()
	c.nc.Close()
	close(c.closed)
	return c.closeErr
}

func (c *Client) closePublishers(ctx context.Context) error {
	c.mu.Lock()
	publishers := make([]*Publisher, 0, len(c.publishers))
	for p := range c.publishers {
		publishers = append(publishers, p)
	}
	c.mu.Unlock()
	errs := make([]error, 0, len(publishers))
	for _, p := range publishers {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

// open refuses with UNAVAILABLE once Close was called.
func (c *Client) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return errClosed()
	}
	return nil
}

func errClosed() error {
	return protocol.Errorf(protocol.CodeUnavailable, "the client is closed: connect another")
}

// connected waits for the connection, so that what is sent next has not been
// sent before.
func (c *Client) connected(ctx context.Context) error {
	if c.link.isOpen.Load() {
		return nil
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	select {
	case <-c.link.passing():
		return nil
	case <-c.closed:
		return errClosed()
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return protocol.Errorf(protocol.CodeUnavailable, "not connected to the mesh at %s: nothing was sent; see whether `waybill up` is running there", c.address)
}

// disconnectedNow makes the next connected wait: a send met the lost connection
// before its event did.
func (c *Client) disconnectedNow() {
	c.link.shut()
	if c.nc.IsConnected() {
		c.link.open()
	}
}

// request asks the mesh, at most until ctx ends, and returns the answer or its
// coded error.
func (c *Client) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	answer, err := c.exchange(ctx, msg)
	if err != nil {
		return nil, requestError(ctx, msg.Subject, err)
	}
	return answer, answerError(answer, protocol.CodeInternal)
}

// exchange sends a request, once, and returns its answer; errors are those of
// the connection, or coded already.
func (c *Client) exchange(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	for {
		if err := c.connected(ctx); err != nil {
			return nil, err
		}
		answer, err := c.nc.RequestMsgWithContext(ctx, msg)
		if !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return answer, err
		}
		c.disconnectedNow()
	}
}

// withAnswerTimeout gives ctx a deadline if it has none.
func withAnswerTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answerTimeout)
}

func requestError(ctx context.Context, subject string, err error) error {
	switch {
	case protocol.CodeOf(err) != "":
		return err
	case errors.Is(err, nats.ErrNoResponders):
		return protocol.Errorf(protocol.CodeUnavailable, "nobody answers %s: see with `waybill stats` which services run, start them with `waybill up`", subject)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return protocol.Errorf(protocol.CodeTimeout, "no answer from %s in time", subject)
	default:
		return sendError(err)
	}
}

// sendError codes what the connection says of a message it did not send; nil
// for nil.
func sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return protocol.Errorf(protocol.CodePayloadTooLarge, "the message is larger than the mesh takes: send a reference to the data instead")
	case errors.Is(err, nats.ErrConnectionClosed):
		return errClosed()
	default:
		return protocol.Errorf(protocol.CodeUnavailable, "the message was not sent: %v", err)
	}
}

// answerError is the error an answer carries, nil if it carries none; fallback
// is the code of one that has none.
func answerError(answer *nats.Msg, fallback protocol.Code) error {
	if headerOf(answer, protocol.HeaderServiceErrorCode) == "" && headerOf(answer, protocol.HeaderServiceError) == "" {
		return nil
	}
	if e := protocol.ParseErrorBody(answer.Data); e != nil {
		return e
	}
	return protocol.Errorf(fallback, "%s", headerOf(answer, protocol.HeaderServiceError))
}

func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%s", host, filepath.Base(os.Args[0]))
}

// redact hides the password of an address that is shown.
func redact(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the given address"
	}
	return u.Redacted()
}
