//go:build !no_artemis

package artemis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-stomp/stomp/v3/frame"

	"github.com/waybill-mq/waybill/services/router/broker/remote"
)

const (
	againMin = 100 * time.Millisecond // before connecting again
	againMax = 3 * time.Second
	// steady is how long a connection lives that was none that the broker ends at
	// once.
	steady = 5 * time.Second
)

// link is a connection that is made again when it is lost.
type link struct {
	b    *Broker
	role string
	// prepare makes a new connection ready to be used, finish returns when those who
	// use one have nothing more to say, since all ends. Either may be nil.
	prepare func(ctx context.Context, conn *connection) error
	finish  func()
	begin   sync.Once

	mu      sync.Mutex
	conn    *connection // nil: there is none
	err     error       // why
	changed chan struct{}
	waiting []*outgoing // for the first connection
}

func newLink(b *Broker, role string) *link {
	return &link{b: b, role: role, changed: make(chan struct{}), err: errors.New("not connected yet")}
}

// start has it connected until ctx ends.
func (l *link) start(ctx context.Context) {
	l.begin.Do(func() { l.b.running.Go(func() { l.keep(ctx) }) })
}

func (l *link) keep(ctx context.Context) {
	wait := againMin
	for { // also if ctx has ended: a connection that is there already is to be closed
		began := time.Now()
		conn, err := l.current(ctx)
		if err == nil {
			err = l.watch(ctx, conn)
		}
		if ctx.Err() != nil {
			break
		}
		l.lost(err)
		if time.Since(began) > steady {
			wait = againMin
		}
		remote.Sleep(ctx, wait/2+rand.N(wait/2)) //nolint:gosec // it only spreads them
		wait = min(2*wait, againMax)
	}
	l.lost(errClosed)
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
	if err != nil {
		return nil, err
	}
	if l.prepare != nil {
		if err := l.prepare(ctx, conn); err != nil {
			conn.end(err, "")
			conn.running.Wait()
			return nil, err
		}
	}
	l.use(conn)
	return conn, nil
}

// watch returns when the connection has ended.
func (l *link) watch(ctx context.Context, conn *connection) error {
	select {
	case <-conn.done:
		conn.running.Wait()
	case <-ctx.Done():
		if l.finish != nil {
			l.finish()
		}
		conn.close()
	}
	return conn.ended()
}

func (l *link) use(conn *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.err = conn, nil
	for _, o := range l.waiting {
		conn.send(o.frame, o.done)
	}
	l.waiting = nil
	l.change()
	l.b.log.Debug("connected", "connection", l.role, "address", l.b.At)
}

// lost has nobody wait for the connection that could not be made, or has ended.
func (l *link) lost(err error) {
	l.mu.Lock()
	if l.conn != nil && !errors.Is(err, errClosed) {
		l.b.lossLevel()("the connection to the broker is lost and is made again", "connection", l.role, "address", l.b.At, "error", err)
	}
	l.conn, l.err = nil, err
	waiting := l.waiting
	l.waiting = nil
	l.change()
	l.mu.Unlock()
	for _, o := range waiting {
		o.done(fmt.Errorf("%w (%w)", remote.ErrNotWritten, err))
	}
}

// change wakes those who wait for one. mu is held.
func (l *link) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// live is the connection, or why nothing can be sent.
func (l *link) live() (*connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if l.conn != nil {
		if err = l.conn.ended(); err == nil {
			return l.conn, nil
		}
	}
	return nil, l.b.Missing(err)
}

// send sends a frame that is confirmed, or waits for the connection to be made.
func (l *link) send(f *frame.Frame, done func(err error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.send(f, done)
		return
	}
	l.waiting = append(l.waiting, &outgoing{frame: f, done: done})
}

// connection waits for the connection until ctx ends.
func (l *link) connection(ctx context.Context) (*connection, error) {
	for {
		l.mu.Lock()
		conn, changed := l.conn, l.changed
		l.mu.Unlock()
		if conn != nil && conn.ended() == nil {
			return conn, nil
		}
		select {
		case <-changed:
		case <-time.After(againMax):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
