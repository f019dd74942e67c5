//go:build !no_rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	dialTimeout = 5 * time.Second
	// heartbeat is how often the peers say that they are there. One that is
	// silent for three of them is gone.
	heartbeat = 3 * time.Second
	againMin  = 100 * time.Millisecond // before connecting again
	againMax  = 3 * time.Second
)

// link is a connection that is made again when it is lost.
type link struct {
	b        *Broker
	role     string
	channels atomic.Int64

	mu      sync.Mutex
	conn    *connection   // nil: there is none
	since   time.Time     // when it was made
	err     error         // why
	blocked string        // why the broker takes nothing at the moment
	changed chan struct{} // closed with the next change
}

// connection is one of the library's and what it is written to.
type connection struct {
	*amqp.Connection
	wire *wire
}

func newLink(b *Broker, role string) *link {
	return &link{b: b, role: role, changed: make(chan struct{}), err: errors.New("not connected yet")}
}

// dial makes a connection.
func (b *Broker) dial(ctx context.Context, role string) (*connection, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	var made connection
	var err error
	made.Connection, err = amqp.DialConfig(b.o.URL, amqp.Config{
		Heartbeat:  heartbeat,
		Properties: amqp.Table{"connection_name": "waybill " + role, "product": "waybill"},
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			// A peer that is dead does not hold up the handshake; the library clears
			// this when it is over.
			made.wire = newWire(conn)
			return made.wire, conn.SetDeadline(time.Now().Add(dialTimeout))
		},
	})
	if err != nil {
		return nil, err
	}
	return &made, nil
}

// keep has the link connected until ctx ends.
func (l *link) keep(ctx context.Context) {
	wait := againMin
	for ctx.Err() == nil {
		conn, err := l.current(ctx)
		if err != nil {
			l.lost(err)
			if !mesh.Pause(ctx, wait/2+rand.N(wait/2)) { //nolint:gosec // it only spreads them
				return
			}
			wait = min(2*wait, againMax)
			continue
		}
		wait = againMin
		l.watch(ctx, conn)
	}
}

// current is the connection, made if there is none.
func (l *link) current(ctx context.Context) (*connection, error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	conn, err := l.b.dial(ctx, l.role)
	if err == nil {
		l.use(conn)
	}
	return conn, err
}

// watch returns when the connection has ended.
func (l *link) watch(ctx context.Context, conn *connection) {
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	for {
		select {
		case now, open := <-blocked:
			if !open {
				blocked = nil
				continue
			}
			l.block(now)
		case err := <-closed:
			l.drop(conn, cause(err))
			return
		case <-ctx.Done():
			if err := conn.CloseDeadline(time.Now().Add(dialTimeout)); err != nil {
				l.b.log.Debug("a connection did not close", "error", err)
			}
			return
		}
	}
}

// cause is why a connection or a channel was closed.
func cause(err *amqp.Error) error {
	if err == nil {
		return amqp.ErrClosed
	}
	return err
}

func (l *link) use(conn *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.err != nil && l.conn == nil
	l.conn, l.since, l.err, l.blocked = conn, time.Now(), nil, ""
	l.change()
	if again {
		l.b.log.Info("connected", "connection", l.role, "address", l.b.At)
	}
}

// age is how long the connection is there.
func (l *link) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.since)
}

// drop forgets a connection that has ended.
func (l *link) drop(conn *connection, err error) {
	l.mu.Lock()
	if l.conn == conn {
		l.conn = nil
	}
	l.mu.Unlock()
	l.lost(err)
}

func (l *link) lost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.b.log.Warn("the connection to the broker is lost and is made again", "connection", l.role, "address", l.b.At, "error", err)
	}
	l.err = err
	l.change()
}

func (l *link) block(now amqp.Blocking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = ""
	if now.Active {
		l.blocked = now.Reason
		l.b.log.Warn("the broker has no room and takes nothing", "address", l.b.At, "reason", now.Reason)
	}
	l.change()
}

// change wakes those who wait for one. mu is held.
func (l *link) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// away says why nothing can be published.
func (l *link) away() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.conn == nil:
		return l.b.Missing(l.err)
	case l.blocked != "":
		return l.b.Faultf(protocol.CodeUnavailable, "has no room (%s): give it some, and try again", l.blocked)
	}
	return nil
}

// unheard says why there is no connection.
func (l *link) unheard() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return l.b.Missing(l.err)
	}
	return nil
}

// channel opens a channel. It waits for the connection until ctx ends.
func (l *link) channel(ctx context.Context) (*amqp.Channel, error) {
	for {
		l.mu.Lock()
		conn, changed := l.conn, l.changed
		l.mu.Unlock()
		if conn != nil {
			ch, err := conn.Channel()
			if err == nil || !errors.Is(err, amqp.ErrClosed) {
				return ch, err
			}
		}
		select {
		case <-changed:
		case <-time.After(againMax):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// together has what f writes be written as one.
func (l *link) together(f func()) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		f()
		return
	}
	conn.wire.together(f)
}

// desk is a channel for one thing after the other. An error of the broker's
// closes it, and the next one has another.
type desk struct {
	link *link
	ch   *amqp.Channel
}

// desks are how many things are asked of a broker at once.
const desks = 12

// newDesks are so many that can be taken and put back, on these links in turn.
func newDesks(n int, links ...*link) chan *desk {
	all := make(chan *desk, n)
	for i := range n {
		all <- &desk{link: links[i%len(links)]}
	}
	return all
}

// ask has f use a channel that nobody else uses meanwhile. UNAVAILABLE: the
// broker is away.
func (b *Broker) ask(ctx context.Context, f func(ch *amqp.Channel) error) error {
	select {
	case d := <-b.desks:
		defer func() { b.desks <- d }()
		return d.do(ctx, f)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *desk) do(ctx context.Context, f func(ch *amqp.Channel) error) error {
	if d.ch == nil || d.ch.IsClosed() {
		if err := d.link.away(); err != nil {
			return err
		}
		ch, err := d.link.channel(ctx)
		if err != nil {
			return d.link.b.Failed("a channel could not be opened", err)
		}
		d.ch = ch
	}
	err := f(d.ch)
	if err != nil && !d.ch.IsClosed() && isAMQP(err) {
		err = errors.Join(err, d.ch.Close())
	}
	return err
}

func isAMQP(err error) bool {
	_, is := errors.AsType[*amqp.Error](err)
	return is
}
